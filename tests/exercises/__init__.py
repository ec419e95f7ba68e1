"""The exercises of the chapters, each chapter with its planted mistakes in one file."""
