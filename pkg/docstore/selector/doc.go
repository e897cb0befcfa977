// Package selector matches JSON documents against CouchDB's selectors, the
// query language of _find, of _changes?filter=_selector and of a replication's
// selector ("Selector Syntax" in CouchDB's documentation), and compares JSON
// values by CouchDB's collation. It follows CouchDB 3.5, does no I/O, and a
// Selector may be used by any number of goroutines at once.
//
// # Operators
//
// A selector is an object of conditions that must all hold. A condition is a
// field's name with a value that it must equal, or with operators:
//
//	$lt $lte $eq $ne $gte $gt    any value, compared by collation
//	$exists                      true or false
//	$type                        "null", "boolean", "number", "string", "array" or "object"
//	$in $nin                     an array; of an array in the document, any element counts
//	$size                        the number of an array's elements
//	$mod                         [divisor, remainder], integers; the remainder has the dividend's sign
//	$regex                       a regular expression, see below
//	$beginsWith                  a string
//	$all                         an array of values that an array in the document must hold
//	$elemMatch $allMatch         a selector that any or every element of an array must match
//	$keyMapMatch                 a selector that any key of an object must match
//	$and $or $nor                an array of selectors
//	$not                         a selector
//
// Fields nest, as {"a": {"b": 1}} or as {"a.b": 1}; a dot that belongs to a
// name is escaped, as is a leading dollar sign: {"a\\.b": 1}, {"\\$a": 1}. A
// number in a path is a position in an array, from 0.
//
// What may surprise, and is CouchDB's:
//
//   - A field that is missing matches nothing but {"$exists": false}: neither
//     $ne nor $nin nor a $not of any other operator. Negations move down to
//     the conditions, so {"$not": {"a": 1}} says {"a": {"$ne": 1}}. Inside
//     $elemMatch, $allMatch and $keyMapMatch they do not: there {"$not": {"a":
//     1}} matches an element without a.
//   - A path through a value that is no object, or past an array's end, matches
//     nothing at all.
//   - An empty selector matches every document, but as the value of a field it
//     is the empty object. An empty $and, $or or $nor matches, negated too; an
//     empty $in or $all does not.
//   - The order of an object's keys counts when objects are compared. Of
//     duplicate keys the last counts.
//   - $all takes numbers to be the same only if both are written as integers
//     or both are not, and strings only if they are the same byte for byte.
//   - Conditions on _id compare as Erlang's terms do, strings byte by byte.
//   - $beginsWith wants whole characters as a reader sees them: "e" is no prefix
//     of an "é" that is written as an e and an accent.
//
// Where CouchDB fails on a document or lets everything pass, Parse refuses the
// selector: a $mod by zero, a field name with an empty part, $text (it needs an
// index). $nor inside $elemMatch, $allMatch and $keyMapMatch, which never
// matches there, does what it says.
//
// # Regular expressions
//
// CouchDB's are Perl's, matched against bytes. Here they take time linear in
// the length of the value, whatever the expression: those of package regexp,
// and lookahead that stands right behind a leading ^ or \A, as in
// "^(?!_design/)". Parse refuses the rest of Perl's syntax (back references,
// lookbehind, lookahead elsewhere, more than 1000 repetitions). As in CouchDB,
// a dot is one byte of UTF-8, and $ also matches before a newline that ends the
// value. Classes such as \w and \s are ASCII's alone.
//
// # Limits
//
// A selector has at most [MaxBytes], [MaxNodes] and [MaxInstructions], and
// matching one document takes at most [MaxSteps]. CouchDB has none of these
// limits. Whoever writes a selector or a document can therefore make neither
// Parse nor Match take much memory or time: Parse takes time linear in the
// selector's length, and counts all regular expressions before it compiles one.
// $in and $nin look values up in a set, however many there are.
//
// # Collation
//
// null < false < true < numbers < strings < arrays < objects. Numbers compare
// by value, exactly, whatever their size; CouchDB rounds those with a fraction
// or an exponent to 64 bits first. Strings compare by the root collation of
// CLDR 23, as they do in CouchDB but for characters that Unicode got only
// after version 6.2 (2012): those sort behind all others here. Arrays and
// objects compare element by element, the shorter one first.
package selector
