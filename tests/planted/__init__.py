"""What is planted in submissions: wrong answers, right ones, and hostile code."""
