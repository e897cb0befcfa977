package replicator

import (
	"fmt"
	"math"
	"math/big"

	"settee/pkg/erlterm"
)

// Terms are the values that decodeJSON gives (nil, bool, string, int64,
// *big.Int, float64, []any, object) and these, which JSON does not have.
type (
	atom  string
	chars string // a list of bytes, Erlang's quoted text
	tuple []any
)

// encodeTerm returns the external form of term, including the version byte. Replication ids are
// hashes over it.
func encodeTerm(term any) []byte {
	return appendTerm([]byte{erlterm.Version}, term)
}

func appendTerm(b []byte, term any) []byte {
	switch t := term.(type) {
	case nil:
		return erlterm.AppendAtom(b, "null")
	case bool:
		return erlterm.AppendBool(b, t)
	case atom:
		return erlterm.AppendAtom(b, string(t))
	case string:
		return erlterm.AppendBinary(b, t)
	case chars:
		return erlterm.AppendChars(b, string(t))
	case int64:
		return erlterm.AppendInteger(b, t)
	case *big.Int:
		return erlterm.AppendBig(b, t)
	case float64:
		return erlterm.AppendFloat(b, t)
	case tuple:
		b = erlterm.AppendTuple(b, len(t))
		for _, element := range t {
			b = appendTerm(b, element)
		}
		return b
	case []any:
		return appendList(b, t)
	case object:
		// The form that CouchDB's JSON decoder gives an object: {[{Key, Value}]}.
		pairs := make([]any, len(t))
		for i, m := range t {
			pairs[i] = tuple{m.name, m.value}
		}
		return appendTerm(b, tuple{pairs})
	default:
		panic(fmt.Sprintf("replicator: no Erlang term for %T", term))
	}
}

// appendList writes a list. In Erlang the JSON array [1,2] is a text, so such a list is written
// as one.
func appendList(b []byte, list []any) []byte {
	if text, ok := listAsChars(list); ok {
		return erlterm.AppendChars(b, text)
	}
	b = erlterm.AppendList(b, len(list))
	for _, element := range list {
		b = appendTerm(b, element)
	}
	return erlterm.AppendNil(b)
}

func listAsChars(list []any) ([]byte, bool) {
	text := make([]byte, len(list))
	for i, element := range list {
		n, ok := element.(int64)
		if !ok || n < 0 || n > math.MaxUint8 {
			return nil, false
		}
		text[i] = byte(n)
	}
	return text, true
}
