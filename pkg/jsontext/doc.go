// Package jsontext reads and checks JSON texts without building values of them: callers get the bytes of names and
// values as they were written.
//
// A text is valid if RFC 8259 and encoding/json take it, it is UTF-8, and its objects and arrays are nested at most
// 10,000 levels deep. Callers choose what they do about two things that the RFC leaves open:
//
//   - A \u escape may stand for half of a surrogate pair without the other half. encoding/json and [String] read
//     U+FFFD in its place. [PairedSurrogates] makes [Check] and a [Reader] refuse it, as CouchDB does.
//   - An object may have several members of one name. Every walk over an object yields all of them, in their order.
//
// There are four ways to read. They differ in what they may assume, and in what they hold in memory.
//
//   - [Valid], [Check], [CheckObject] and [End] check a text that is in memory, in one pass. They allocate nothing.
//   - [Members], [Elements], [Tokens], [String], [AppendString] and [Strings] read a text that was checked before. They
//     may panic on any other. They allocate nothing except the strings that they return, and names that have escapes.
//     Reading all Tokens takes time in proportion to the length of the text. Members and Elements look for the end of
//     each value: a caller that uses them again on these values reads what is deep many times.
//   - [Object] walks over the members of one object and checks them on the way. It can tell text that is wrong from text
//     of which the end is missing.
//   - [Reader] reads a text from an io.Reader, step by step. It holds a window and at most one value of a size that its
//     caller limits. It checks the values that it returns.
package jsontext
