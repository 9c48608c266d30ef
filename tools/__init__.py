"""What installs the project, and what writes docs/validity.md."""
