"""Downloads public data sets: names from a table, bytes verified, broken off and taken up again."""
