// Package sealed keeps secrets in a store that others may come to read: in its files, its
// backups, or from another client of its cluster. Values are sealed with authenticated
// encryption (AEAD), AES-256-GCM, under one of several keys that each have an id, so that keys
// can be rotated while values of earlier ones are there.
//
// # Keys
//
// A key file has one key in each line, its id and 32 bytes in base64:
//
//	# the first one seals, all of them open
//	2026-02 mLbFyYFKsEgT...=
//	2025-11 4tLrZ3VUjO0s...=
//
// Empty lines, and those that begin with a #, say nothing. [NewLine] makes a line.
//
// # Values
//
// A sealed value is an envelope:
//
//	version       1 byte, 1
//	n             1 byte, the length of the key id
//	key id        n bytes
//	nonce         12 bytes, random
//	ciphertext    as long as the text
//	tag           16 bytes
//
// Additional data binds it to its place, a list of texts such as the kind of value and the id of
// what it is part of: a value that was moved to another place does not open. An earlier value of
// the same place does, and which values there are, when they change and how long they are, can be
// seen.
//
// A nonce is drawn for each value. One key is good for 2^32 of them (NIST SP 800-38D, section
// 8.3), of which there are 49 days' worth at a thousand a second.
//
// What does not begin with the version is a plain value, of the time before there were keys, and
// opens as it is: plain texts must not begin with a byte of 1, as no JSON does.
package sealed
