"""Grading of assignments: student code runs apart, its answers are judged here. [Ours]

`_inside` runs in the student's process and never imports the rest of the book. All
else runs in the grader's: it sends inputs, gets plain arrays back and trusts nothing.
"""
