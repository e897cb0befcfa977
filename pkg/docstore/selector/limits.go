package selector

import "fmt"

// What a selector may be. [Parse] refuses more with an [Error] that names the
// limit.
const (
	// MaxBytes is the size of a selector's JSON text, 1 MiB: some 25,000 ids in
	// an $in. It is the size of its field names too, each with the names above it.
	MaxBytes = 1 << 20
	// MaxNodes is how many fields, operators and elements of $and, $or and $nor
	// a selector has.
	MaxNodes = 50_000
	// MaxInstructions is how many instructions the expressions of all $regex of a
	// selector have together once they are compiled, where each part of an
	// expression counts as often as it may repeat: .{1000} has 1,000. It is also
	// how many bytes they have together, where a class \p{...} counts as 1,000.
	MaxInstructions = 50_000
	// maxDepth is how many levels of fields and operators a selector has. Values
	// that are compared may nest deeper.
	maxDepth = 100
)

// MaxSteps is how many steps of work a selector may take to match one document.
// A step takes some 15 ns: it is one instruction of a regular expression
// on one byte of a value, one value that is visited or compared, or bytesPerStep
// bytes that are read. As many as these take a fraction of a second.
const MaxSteps = 25_000_000

// MaxDigits is how many digits an integer has at most where it is converted, as
// those of $mod are: that takes time that grows with the square of its length.
// Numbers that are only compared may have any length.
const MaxDigits = 1000

func tooLarge(format string, args ...any) *Error {
	return &Error{"invalid_selector", fmt.Sprintf(format, args...)}
}
