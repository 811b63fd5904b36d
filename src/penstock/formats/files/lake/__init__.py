"""Tables of files in a lake: what a program holds of one, the calls, their answers, jobs, and care."""
