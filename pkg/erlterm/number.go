package erlterm

import (
	"encoding/binary"
	"math"
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

// float returns a number that has a fraction or an exponent. It is infinite if CouchDB refuses it.
//
// CouchDB's decoder leaves most numbers to strtod. An integer with an exponent that strtod finds out of range, or that
// is longer than 31 bytes, it multiplies with a power of ten, and so rounds several times.
func float(text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	e := strings.IndexAny(text, "eE")
	if e < 0 || strings.Contains(text, ".") {
		return f
	}
	subnormal := f != 0 && math.Abs(f) < 0x1p-1022
	vanished := f == 0 && strings.Trim(text[:e], "-0") != ""
	if len(text) < 32 && err == nil && !subnormal && !vanished {
		return f
	}
	exponent, err := strconv.Atoi(text[e+1:])
	switch {
	case e > MaxDigits, err != nil && text[e+1] != '-':
		return math.Inf(1)
	case err != nil:
		exponent = math.MinInt32
	}
	power := powerOfTen(exponent)
	if math.IsInf(power, 0) {
		return power
	}
	return toFloat(integer(text[:e])) * power
}

// toFloat converts an integer as Erlang does: digit by digit of 64 bits, if it has more than 60 bits.
func toFloat(n *big.Int) (f float64) {
	if n.IsInt64() {
		return float64(n.Int64())
	}
	digits := new(big.Int).Abs(n).FillBytes(make([]byte, (n.BitLen()+63)/64*8))
	for ; len(digits) > 0; digits = digits[8:] {
		// Not one expression, which might round once only.
		shifted := f * 0x1p64
		f = shifted + float64(binary.BigEndian.Uint64(digits))
	}
	return math.Copysign(f, float64(n.Sign()))
}

// powerOfTen returns what pow(10, n) of the GNU C library returns. Two of its results are not the nearest float.
func powerOfTen(n int) float64 {
	f, _ := strconv.ParseFloat("1e"+strconv.Itoa(n), 64) // infinite if it is too large
	if n == 23 || n == 210 {
		return math.Nextafter(f, math.Inf(1))
	}
	return f
}
