"""What runs in the process of a student's code; started as a script, not imported."""
