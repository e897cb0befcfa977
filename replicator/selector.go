package replicator

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// A replication id covers a selector as CouchDB's query engine normalises it, with the keys of
// every object sorted. Normalising takes three steps, each over the whole selector:
//
//   - operators: several members of one object become an explicit $and of
//     objects with one member, in their order, and a bare value becomes $eq;
//   - fields: names are pushed below $and, $or, $not and $nor and joined with
//     dots, so that each ends up directly above an operator on its value;
//   - negations: $not and $nor are pushed to the values, where most operators
//     have an opposite.
//
// $and keeps the order of the members it was made of. Therefore selectors with another order of
// keys have different ids, as in CouchDB.

// normalSelector returns the normalised, sorted selector that ids cover. Its errors are for the
// author of the selector.
func normalSelector(selector object) (object, error) {
	if len(selector) == 0 {
		return selector, nil
	}
	reader := operatorReader{left: MaxSelectorNodes}
	explicit, err := reader.operators(selector)
	if err != nil {
		return nil, err
	}
	flattener := fieldFlattener{left: maxFieldBytes}
	flat, err := flattener.flat(explicit, "")
	if err != nil {
		return nil, err
	}
	normal, err := pushNegations(flat)
	if err != nil {
		return nil, err
	}
	if normal[0].name == "" {
		return nil, errors.New("an operator needs a field to apply to")
	}
	return sortedKeys(normal).(object), nil
}

// single returns an object with one member. Normalised selectors consist of such objects.
func single(name string, value any) object {
	return object{{name: name, value: value}}
}

// Limits of a selector. They are those of settee/pkg/docstore/selector, which applies them when
// the source is a settee, and which this package does not import.
const (
	// MaxSelectorBytes is the most bytes of a selector's JSON text.
	MaxSelectorBytes = 1 << 20
	// MaxSelectorNodes is the most fields, operators and elements of $and, $or and $nor.
	MaxSelectorNodes = 50_000
)

// operatorReader makes the operators of a selector explicit.
type operatorReader struct {
	left int // of MaxSelectorNodes
}

// node counts a field, an operator, or an element.
func (r *operatorReader) node() error {
	if r.left--; r.left < 0 {
		return fmt.Errorf("it has more than %d fields and operators", MaxSelectorNodes)
	}
	return nil
}

func (r *operatorReader) operators(value any) (object, error) {
	selector, ok := value.(object)
	if !ok || len(selector) == 0 {
		return single("$eq", value), nil
	}
	if len(selector) > 1 {
		parts := make([]any, len(selector))
		for i, m := range selector {
			parts[i] = object{m}
		}
		return r.all("$and", parts)
	}
	if err := r.node(); err != nil {
		return nil, err
	}
	name, arg := selector[0].name, selector[0].value
	if !strings.HasPrefix(name, "$") {
		condition, err := r.operators(arg)
		if err != nil {
			return nil, err
		}
		return single(name, condition), nil
	}
	return r.operator(name, arg)
}

func (r *operatorReader) operator(name string, arg any) (object, error) {
	switch name {
	case "$and", "$or", "$nor":
		list, ok := arg.([]any)
		if !ok {
			return nil, argumentError(name, "an array")
		}
		for range list {
			if err := r.node(); err != nil {
				return nil, err
			}
		}
		return r.all(name, list)
	case "$not", "$elemMatch", "$allMatch", "$keyMapMatch":
		if _, ok := arg.(object); !ok {
			return nil, argumentError(name, "an object")
		}
		inner, err := r.operators(arg)
		if err != nil {
			return nil, err
		}
		return single(name, inner), nil
	case "$text":
		switch arg.(type) {
		case string, bool, int64, *big.Int, float64:
			return single("$default", single("$text", arg)), nil
		}
		return nil, argumentError(name, "a string, a number or a boolean")
	}
	if err := checkArgument(name, arg); err != nil {
		return nil, err
	}
	return single(name, arg), nil
}

func (r *operatorReader) all(name string, parts []any) (object, error) {
	explicit := make([]any, len(parts))
	for i, part := range parts {
		var err error
		if explicit[i], err = r.operators(part); err != nil {
			return nil, err
		}
	}
	return single(name, explicit), nil
}

// checkArgument checks the argument of an operator that contains no selectors. It does not
// compile the pattern of $regex, because the source decides its syntax.
func checkArgument(name string, arg any) error {
	ok, want := true, ""
	switch name {
	case "$lt", "$lte", "$eq", "$ne", "$gte", "$gt", "$default":
	case "$in", "$nin", "$all":
		_, ok = arg.([]any)
		want = "an array"
	case "$exists":
		_, ok = arg.(bool)
		want = "a boolean"
	case "$type", "$regex", "$beginsWith":
		_, ok = arg.(string)
		want = "a string"
	case "$mod":
		list, isList := arg.([]any)
		ok = isList && len(list) == 2 && isInteger(list[0]) && isInteger(list[1])
		want = "an array of two integers"
	case "$size":
		ok = isInteger(arg) && !isNegative(arg)
		want = "an integer of 0 or more"
	case "$where", "$geoWithin", "$geoIntersects", "$near", "$nearSphere":
		return fmt.Errorf("operator `%s` is not supported", name)
	default:
		return fmt.Errorf("`%s` is not an operator", name)
	}
	if !ok {
		return argumentError(name, want)
	}
	return nil
}

func argumentError(operator, want string) error {
	return fmt.Errorf("the argument of `%s` must be %s", operator, want)
}

func isInteger(value any) bool {
	switch value.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func isNegative(value any) bool {
	switch n := value.(type) {
	case int64:
		return n < 0
	case *big.Int:
		return n.Sign() < 0
	}
	return false
}

// maxFieldBytes bounds the total length of the field names in a normalised selector. Each name
// repeats the names above it, so without a bound a small selector could exhaust the memory.
// CouchDB has no such limit.
const maxFieldBytes = 8 << 20

// fieldFlattener pushes field names down to the operators on their values.
type fieldFlattener struct {
	left int // of maxFieldBytes
}

// flat takes and returns objects with one member, as operatorReader makes them. path is the field
// that the selector applies to, "" at the top.
func (f *fieldFlattener) flat(selector object, path string) (object, error) {
	if f.left -= len(path); f.left < 0 {
		return nil, errors.New("its field names are too long")
	}
	name, arg := selector[0].name, selector[0].value
	switch name {
	case "$and", "$or", "$nor":
		return mapParts(name, arg, func(part object) (object, error) { return f.flat(part, path) })
	case "$not":
		flat, err := f.flat(arg.(object), path)
		if err != nil {
			return nil, err
		}
		return single(name, flat), nil
	case "$elemMatch", "$allMatch", "$keyMapMatch":
		flat, err := f.flat(arg.(object), "")
		if err != nil {
			return nil, err
		}
		return single(path, single(name, flat)), nil
	case "$default":
		if path != "" || !isTextOnly(arg) {
			return nil, errors.New("`$text` must stand at the top of a selector")
		}
		return selector, nil
	}
	if strings.HasPrefix(name, "$") {
		return single(path, selector), nil
	}
	if path != "" {
		name = path + "." + name
	}
	return f.flat(arg.(object), name)
}

func isTextOnly(value any) bool {
	inner, ok := value.(object)
	return ok && len(inner) == 1 && inner[0].name == "$text"
}

func pushNegations(selector object) (object, error) {
	name, arg := selector[0].name, selector[0].value
	switch name {
	case "$not":
		return negate(arg.(object))
	case "$nor":
		return mapParts("$and", arg, negate)
	case "$and", "$or":
		return mapParts(name, arg, pushNegations)
	}
	return selector, nil
}

// opposites maps an operator to the operator with the same argument that negates it.
var opposites = map[string]string{
	"$lt": "$gte", "$gte": "$lt",
	"$lte": "$gt", "$gt": "$lte",
	"$eq": "$ne", "$ne": "$eq",
	"$in": "$nin", "$nin": "$in",
}

func negate(selector object) (object, error) {
	name, arg := selector[0].name, selector[0].value
	switch name {
	case "$not":
		return pushNegations(arg.(object))
	case "$nor":
		return mapParts("$or", arg, pushNegations)
	case "$and":
		return mapParts("$or", arg, negate)
	case "$or":
		return mapParts("$and", arg, negate)
	case "$default":
		return nil, errors.New("`$text` must not be negated")
	case "$exists":
		return single(name, !arg.(bool)), nil
	}
	if opposite, ok := opposites[name]; ok {
		return single(opposite, arg), nil
	}
	if strings.HasPrefix(name, "$") {
		return single("$not", selector), nil
	}
	condition, err := negate(arg.(object))
	if err != nil {
		return nil, err
	}
	return single(name, condition), nil
}

func mapParts(name string, parts any, step func(object) (object, error)) (object, error) {
	list := parts.([]any)
	mapped := make([]any, len(list))
	for i, part := range list {
		var err error
		if mapped[i], err = step(part.(object)); err != nil {
			return nil, err
		}
	}
	return single(name, mapped), nil
}

// sortedKeys returns value with the members of every object in it, including those in arrays, in
// the byte order of their names.
func sortedKeys(value any) any {
	switch v := value.(type) {
	case object:
		sorted := make(object, len(v))
		for i, m := range v {
			sorted[i] = member{name: m.name, value: sortedKeys(m.value)}
		}
		slices.SortStableFunc(sorted, func(a, b member) int { return cmp.Compare(a.name, b.name) })
		return sorted
	case []any:
		sorted := make([]any, len(v))
		for i, element := range v {
			sorted[i] = sortedKeys(element)
		}
		return sorted
	}
	return value
}
