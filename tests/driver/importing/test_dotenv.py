"""Files of variables."""

from driver.importing.dotenv import read_variables


def test_a_file_of_variables_is_read_as_clients_read_it() -> None:
    """Quotes and comments are no part of values; what is within quotes is."""
    text = """
        # a comment
        A=1
        export B = two words # and a comment
        C='# no comment'
        D="x=y"
        E=
        F=a#b
        no variable
        =x
    """
    assert read_variables(text) == {
        "A": "1",
        "B": "two words",
        "C": "# no comment",
        "D": "x=y",
        "E": "",
        "F": "a#b",
    }
