"""Steps of the library, for programs that log."""

import logging

from layermem.utils.steps import LOGGER, report_step


def test_steps_are_log_records_of_level_info(caplog):
    with caplog.at_level(logging.INFO, "layermem"):
        report_step("read %s: %d layers", "a", 3)
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [("layermem", "INFO", "read a: 3 layers")]


def test_a_program_that_does_not_log_sees_none(capsys):
    LOGGER.info("text")
    assert capsys.readouterr() == ("", "")
