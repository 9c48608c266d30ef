"""What installs the project, and what writes docs/development/validity-tables.md."""
