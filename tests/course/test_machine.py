"""What a lesson says of this machine at its start."""

from course import machine


def test_doctor_lists_emulated_results_apart(capsys):
    machine.doctor()
    lines = capsys.readouterr().out.splitlines()
    (recorded,) = [line for line in lines if line[5:].startswith("recorded results")]
    (emulated,) = [line for line in lines if line[5:].startswith("emulated results")]
    assert "amd-epyc" in recorded and "emulated" not in recorded
    assert emulated.endswith("no GPU: emulated-tesla-t4")
