// Package erlterm writes terms in the Erlang external term format, as term_to_binary(Term, [{minor_version, 1}]) of
// OTP 25 does. CouchDB's revision ids and replication ids are hashes over such terms. The package writes the part of the
// format that these need:
//
//	tag                  layout                            written for
//	70  NEW_FLOAT_EXT    8 bytes, IEEE 754                 floats
//	97  SMALL_INTEGER    1 byte                            integers 0 to 255
//	98  INTEGER          4 bytes, signed                   other integers of 32 bits
//	100 ATOM             2 bytes length, Latin-1 text      atoms
//	104 SMALL_TUPLE      1 byte arity, elements            tuples
//	106 NIL              nothing                           an empty list
//	107 STRING           2 bytes length, bytes             lists of 1 to 65535 integers 0 to 255
//	108 LIST             4 bytes length, elements, NIL     other lists
//	109 BINARY           4 bytes length, bytes             binaries
//	110 SMALL_BIG        1 byte n, 1 byte sign, n bytes    integers of up to 255 bytes
//	111 LARGE_BIG        4 bytes n, 1 byte sign, n bytes   longer ones
//
// Numbers are big-endian, except that the bytes of a big integer begin with the lowest. Minor version 1 decides the form
// of floats (0 wrote text) and of atoms (2 writes UTF-8).
//
// The functions append to a buffer, which begins with [Version]. [AppendJSON] appends the term that CouchDB's JSON
// decoder makes of a text.
package erlterm
