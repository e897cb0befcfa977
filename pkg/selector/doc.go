// Package selector matches JSON documents against CouchDB's selectors, the query language of
// _find, of _changes?filter=_selector and of replications ("Selector Syntax" in CouchDB's
// documentation), and compares JSON values by CouchDB's collation. It follows CouchDB 3.5 and
// does no I/O. A Selector is safe for concurrent use.
//
// # Operators
//
// A selector is an object of conditions that must all hold. A condition is a field's name with a
// value that the field must equal, or with operators:
//
//	$lt $lte $eq $ne $gte $gt    any value, compared by collation
//	$exists                      true or false
//	$type                        "null", "boolean", "number", "string", "array" or "object"
//	$in $nin                     an array; any element of an array in the document counts
//	$size                        the length of an array
//	$mod                         [divisor, remainder], integers; the remainder has the dividend's sign
//	$regex                       a regular expression, see below
//	$beginsWith                  a string
//	$all                         an array of values that an array in the document must contain
//	$elemMatch $allMatch         a selector that any or every element of an array must match
//	$keyMapMatch                 a selector that any key of an object must match
//	$and $or $nor                an array of selectors
//	$not                         a selector
//
// Fields nest, as {"a": {"b": 1}} or as {"a.b": 1}. A dot in a name, or a dollar sign at its
// beginning, is escaped: {"a\\.b": 1}, {"\\$a": 1}. A number in a path is an index of an array,
// from 0.
//
// These rules of CouchDB may be surprising:
//
//   - A missing field matches only {"$exists": false}, neither $ne nor $nin nor
//     a $not of any other operator. Negations move down to the conditions, so
//     {"$not": {"a": 1}} means {"a": {"$ne": 1}}. Inside $elemMatch, $allMatch
//     and $keyMapMatch they do not: there {"$not": {"a": 1}} matches an element
//     without a.
//   - A path through a value that is not an object, or past an array's end,
//     matches nothing.
//   - An empty selector matches every document, but as the value of a field it
//     is the empty object. An empty $and, $or or $nor matches, negated too; an
//     empty $in or $all does not.
//   - The order of keys counts when objects are compared. The last of duplicate
//     keys counts.
//   - For $all, numbers are equal only if both or none of them are written as
//     integers, and strings only if they are equal byte for byte.
//   - Conditions on _id compare as Erlang terms do, strings byte by byte.
//   - $beginsWith compares whole characters as a reader sees them: "e" is not a
//     prefix of an "é" that is written as an e and an accent.
//
// Where CouchDB fails on a document or matches every document, Parse refuses the selector: a $mod
// by zero, a field name with an empty part, $text (it needs an index). $nor inside $elemMatch,
// $allMatch and $keyMapMatch, which never matches in CouchDB, is supported.
//
// # Regular expressions
//
// CouchDB's regular expressions are Perl's, matched against bytes. Here they take time linear in
// the length of the value: supported is the syntax of package regexp, and lookahead directly
// after a leading ^ or \A, as in "^(?!_design/)". Parse refuses the rest of Perl's syntax (back
// references, lookbehind, other lookahead, more than 1000 repetitions). As in CouchDB, a dot is
// one byte of UTF-8, and $ also matches before a newline at the end. Classes such as \w and \s
// are ASCII only.
//
// # Limits
//
// A selector has at most [MaxBytes], [MaxNodes] and [MaxInstructions], and matching one document
// takes at most [MaxSteps], so that no selector or document makes Parse or Match take much memory
// or time. CouchDB has no such limits. Parse takes time linear in the selector's length, and
// counts all regular expressions before it compiles one. $in and $nin look values up in a set.
//
// # Collation
//
// null < false < true < numbers < strings < arrays < objects. Numbers of any size compare exactly
// by value; CouchDB first rounds those with a fraction or an exponent to 64 bits. Strings compare
// by the root collation of CLDR 23, as in CouchDB, except for characters added to Unicode after
// version 6.2 (2012), which sort after all others. Arrays and objects compare element by element,
// the shorter one first.
package selector
