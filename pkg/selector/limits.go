package selector

import "fmt"

// Limits of a selector. [Parse] refuses larger ones with an [Error] that names the limit.
const (
	// MaxBytes is the most bytes of a selector's JSON text, 1 MiB: some 25,000 ids in an $in. It
	// also limits the sum of its field names, each with the names above it.
	MaxBytes = 1 << 20
	// MaxNodes is the most fields, operators and elements of $and, $or and $nor.
	MaxNodes = 50_000
	// MaxInstructions is the most compiled instructions of all $regex of a selector, where a part
	// that repeats counts as often as it may repeat: .{1000} has 1,000. It also limits the sum of
	// their bytes, where a class \p{...} counts as 1,000.
	MaxInstructions = 50_000
	// maxNormalNames is the most bytes of all field names in a normalised selector. Each operator
	// repeats the name above it, so without a bound a small selector could exhaust the memory.
	maxNormalNames = 8 << 20
	// maxDepth is the most levels of fields and operators. Values may nest deeper.
	maxDepth = 100
)

// MaxSteps is the most steps for matching one document, together a fraction of a second. A step
// takes some 15 ns. It is one instruction of a regular expression on one byte, one value that is
// visited or compared, or bytesPerStep bytes that are read.
const MaxSteps = 25_000_000

// MaxDigits is the most digits of an integer that is converted, as the operands of $mod are, because
// that takes quadratic time. Numbers that are only compared may have any length.
const MaxDigits = 1000

func tooLarge(format string, args ...any) *Error {
	return &Error{Name: "invalid_selector", Reason: fmt.Sprintf(format, args...)}
}
