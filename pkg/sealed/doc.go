// Package sealed encrypts secrets in a store that others may be able to read: its files, its
// backups, or the data of its cluster through another client. Values are sealed with
// authenticated encryption (AEAD), AES-256-GCM, under one of several keys. Each key has an id, so
// that keys can be rotated while values of earlier keys exist.
//
// # Keys
//
// A key file has one key in each line, its id and 32 bytes in base64:
//
//	# the first key seals, all keys open
//	2026-02 mLbFyYFKsEgT...=
//	2025-11 4tLrZ3VUjO0s...=
//
// Empty lines and lines that begin with # are ignored. [NewLine] makes a line.
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
// Additional data binds a value to its place, a list of texts such as the kind of value and the
// id of the row it belongs to: a value that was moved to another place does not open. An earlier
// value of the same place does open. The number of values, their lengths and the times of their
// changes are visible.
//
// The nonce of each value is random. One key can seal 2^32 values (NIST SP 800-38D, section 8.3),
// which is 49 days at a thousand a second.
//
// A value that does not begin with the version byte is plain, written before there were keys, and
// is returned as it is. Plain texts must therefore not begin with the byte 1; JSON never does.
package sealed
