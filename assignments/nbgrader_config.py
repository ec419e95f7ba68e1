"""For nbgrader's commands, run in this folder."""

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "eagle3"
c.CourseDirectory.db_url = "sqlite:///gradebook.db"
c.ClearSolutions.code_stub = {"python": "raise NotImplementedError()"}
c.Execute.timeout = 60
