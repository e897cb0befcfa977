package selector

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// isInteger reports whether a number is written as an integer. 10.0 and 1e1 are floats in
// CouchDB.
func isInteger(literal []byte) bool {
	for _, c := range literal {
		if c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}

// isInteger reports whether a value is a number that is written as an integer.
func (v value) isInteger() bool { return v.kind() == kindNumber && isInteger(v.literal()) }

// compareNumbers compares two numbers by value.
func (w *work) compareNumbers(x, y value) int {
	a, b := x.literal(), y.literal()
	w.spend(stepsPerNumber + (len(a)+len(b))/bytesPerStep)
	const surelyInt64 = 18
	if len(a) <= surelyInt64 && len(b) <= surelyInt64 && isInteger(a) && isInteger(b) {
		m, _ := strconv.ParseInt(string(a), 10, 64)
		n, _ := strconv.ParseInt(string(b), 10, 64)
		return cmp.Compare(m, n)
	}
	return parseDecimal(string(a)).compare(parseDecimal(string(b)))
}

// decimal is a number in the form sign * 0.digits * 10^exponent. The digits neither begin nor end
// with a zero, so every number has one form, and comparing needs no arithmetic: 1e1000000000 is
// as cheap as 1.
type decimal struct {
	sign     int // -1, 0 or 1
	exponent int64
	digits   string
}

func parseDecimal(literal string) decimal {
	d := decimal{sign: 1}
	if rest, negative := strings.CutPrefix(literal, "-"); negative {
		d.sign, literal = -1, rest
	}
	mantissa := literal
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, d.exponent = literal[:i], parseExponent(literal[i+1:])
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.exponent += int64(len(whole) - (len(whole) + len(fraction) - len(digits)))
	d.digits = strings.TrimRight(digits, "0")
	if d.digits == "" {
		return decimal{}
	}
	return d
}

// parseExponent bounds exponents by 10^18.
func parseExponent(s string) int64 {
	const limit = 1_000_000_000_000_000_000
	n, err := strconv.ParseInt(s, 10, 64) // out of range n is the nearest int64
	if err != nil || n > limit || n < -limit {
		if strings.HasPrefix(s, "-") {
			return -limit
		}
		return limit
	}
	return n
}

func (d decimal) compare(other decimal) int {
	if d.sign != other.sign || d.sign == 0 {
		return cmp.Compare(d.sign, other.sign)
	}
	if c := cmp.Compare(d.exponent, other.exponent); c != 0 {
		return d.sign * c
	}
	return d.sign * strings.Compare(d.digits, other.digits)
}

// remainder returns an integer's remainder by a divisor, with the integer's sign. It converts the
// digits in pieces, because converting a long number as a whole takes quadratic time.
func (w *work) remainder(literal []byte, divisor *big.Int) *big.Int {
	const piece = 18
	digits, negative := bytes.CutPrefix(literal, []byte("-"))
	w.spend((len(digits)/piece + 1) * (stepsPerDivision + len(divisor.Bits())))
	rest := new(big.Int)
	for len(digits) > 0 {
		n := min(piece, len(digits))
		part, _ := strconv.ParseInt(string(digits[:n]), 10, 64)
		rest.Mul(rest, big.NewInt(int64(math.Pow10(n))))
		rest.Add(rest, big.NewInt(part))
		rest.Rem(rest, divisor)
		digits = digits[n:]
	}
	if negative {
		rest.Neg(rest)
	}
	return rest
}
