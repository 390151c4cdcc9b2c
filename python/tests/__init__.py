"""The tests of the package; run them with pytest."""
