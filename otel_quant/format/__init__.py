"""The format of a recording: names of files, fields, errors. Writers and readers meet only here."""
