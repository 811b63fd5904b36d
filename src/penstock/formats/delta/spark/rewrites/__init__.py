"""Update, delete and merge: which rows and files they touch, and what becomes of these."""
