package erlterm

import (
	"cmp"
	"math/big"
	"strconv"
	"strings"
)

// MaxDigits is the maximum number of digits of an integer that is converted. The time for that grows with the square of
// its length.
const MaxDigits = 1000

// appendNumber appends a JSON number.
func appendNumber(b, text []byte) []byte {
	for _, c := range text {
		if c > '9' || c == '.' { // an exponent, or a fraction
			return AppendFloat(b, float(string(text)))
		}
	}
	if len(text) < 19 { // it fits into 64 bits
		n, _ := strconv.ParseInt(string(text), 10, 64)
		return AppendInteger(b, n)
	}
	if len(text) > MaxDigits {
		return AppendBinary(b, text)
	}
	return AppendBig(b, integer(string(text)))
}

func integer(text string) *big.Int {
	n, _ := new(big.Int).SetString(text, 10) // the text is valid
	return n
}

// float returns the float that is nearest to a number that has a fraction or an exponent. It is infinite if CouchDB refuses
// the number.
func float(text string) float64 {
	f, _ := strconv.ParseFloat(moveDot(text), 64) // the text is valid, and what is too large is infinite
	return f
}

// countedDigits is the number of digits before the dot that strconv.ParseFloat of Go 1.26 takes into account.
const countedDigits = 800

// moveDot returns a number with the dot behind the first digit if it has too many digits before it.
func moveDot(text string) string {
	digits := strings.IndexAny(text, ".eE")
	if digits <= countedDigits {
		return text
	}
	first := 1 + len(text) - len(strings.TrimPrefix(text, "-"))
	fraction, power, _ := strings.Cut(strings.ToLower(text[digits:]), "e")
	exponent, err := strconv.Atoi(cmp.Or(power, "0"))
	if err != nil { // what is added to it does not matter
		return text
	}
	return text[:first] + "." + text[first:digits] + strings.TrimPrefix(fraction, ".") + "e" + strconv.Itoa(exponent+digits-first)
}
