// Ends the process with a separate exit code when a mapped file fails.
#pragma once

namespace layermem {

// From now on, SIGBUS by a page of a mapped file that cannot be read or written (the file was cut short, its disk
// failed) ends the process with a sentence on standard error and exit code 4, that of a device error.  SIGBUS that
// another process sends keeps its default effect.
void exit_on_bus_error();

}  // namespace layermem
