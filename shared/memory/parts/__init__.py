"""The parts of the shared region, as the table of shared/README.md names them: a file for each, with its fields.

A part stands on region/ and on the settings of a run. Read board first, then ring, mailbox and snapshot, which a lane
uses. The rest are publication, evaluation_queue, gateways and shared_parameters.
"""
