"""What Delta's protocol says: actions, names, features, and the rules for commits."""
