package selector_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/jsontext"
	"settee/pkg/selector"
)

// The expectations are the results of CouchDB 3.5.0's mango_selector:normalize, with sorted keys.
func TestNormal(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		`{}`:                                 `{}`,
		`{"a": 1}`:                           `{"a": {"$eq": 1}}`,
		`{"a": {}}`:                          `{"a": {"$eq": {}}}`,
		`{"a": null, "b": [1]}`:              `{"$and": [{"a": {"$eq": null}}, {"b": {"$eq": [1]}}]}`,
		`{"b": 1, "a": 2}`:                   `{"$and": [{"b": {"$eq": 1}}, {"a": {"$eq": 2}}]}`,
		`{"a": {"b": {"$gt": 1}}}`:           `{"a.b": {"$gt": 1}}`,
		`{"a": {"$gt": 1, "$lt": 5}}`:        `{"$and": [{"a": {"$gt": 1}}, {"a": {"$lt": 5}}]}`,
		`{"a": {"$or": [{"$gt": 1}, 5]}}`:    `{"$or": [{"a": {"$gt": 1}}, {"a": {"$eq": 5}}]}`,
		`{"a": {"$in": [{"z": 1, "y": 2}]}}`: `{"a": {"$in": [{"y": 2, "z": 1}]}}`,
		`{"a": {"$elemMatch": {"$gte": 80, "$lt": 85}}}`:    `{"a": {"$elemMatch": {"$and": [{"": {"$gte": 80}}, {"": {"$lt": 85}}]}}}`,
		`{"a": {"$allMatch": {"b": {"$not": {"$gt": 1}}}}}`: `{"a": {"$allMatch": {"$not": {"b": {"$gt": 1}}}}}`,
		`{"a": {"$keyMapMatch": {"$eq": "k"}}}`:             `{"a": {"$keyMapMatch": {"": {"$eq": "k"}}}}`,
		`{"$text": "x"}`:                                    `{"$default": {"$text": "x"}}`,
		`{"$default": {"$text": "x"}}`:                      `{"$default": {"$text": "x"}}`,

		`{"$not": {"a": {"$lt": 1}}}`:                              `{"a": {"$gte": 1}}`,
		`{"$not": {"a": {"$lte": 1}}}`:                             `{"a": {"$gt": 1}}`,
		`{"$not": {"a": {"$gt": 1}}}`:                              `{"a": {"$lte": 1}}`,
		`{"$not": {"a": {"$gte": 1}}}`:                             `{"a": {"$lt": 1}}`,
		`{"$not": {"a": {"$eq": 1}}}`:                              `{"a": {"$ne": 1}}`,
		`{"$not": {"a": {"$ne": 1}}}`:                              `{"a": {"$eq": 1}}`,
		`{"a": {"$not": {"$in": [1]}}}`:                            `{"a": {"$nin": [1]}}`,
		`{"a": {"$not": {"$nin": [1]}}}`:                           `{"a": {"$in": [1]}}`,
		`{"a": {"$not": {"$exists": true}}}`:                       `{"a": {"$exists": false}}`,
		`{"a": {"$not": {"$size": 2}}}`:                            `{"a": {"$not": {"$size": 2}}}`,
		`{"$not": {"$not": {"a": 1}}}`:                             `{"a": {"$eq": 1}}`,
		`{"$not": {"$nor": [{"a": 1}, {"b": 1}]}}`:                 `{"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]}`,
		`{"$not": {"$and": [{"a": 1}, {"b": 1}]}}`:                 `{"$or": [{"a": {"$ne": 1}}, {"b": {"$ne": 1}}]}`,
		`{"$not": {"$or": [{"a": 1}, {"b": 1}]}}`:                  `{"$and": [{"a": {"$ne": 1}}, {"b": {"$ne": 1}}]}`,
		`{"$nor": [{"a": 1}]}`:                                     `{"$and": [{"a": {"$ne": 1}}]}`,
		`{"$or": [{"$nor": [{"a": 1}]}, {"b": {"$mod": [2, 1]}}]}`: `{"$or": [{"$and": [{"a": {"$ne": 1}}]}, {"b": {"$mod": [2, 1]}}]}`,
	}
	for text, want := range tests {
		got, err := selector.Normal([]byte(text))
		require.NoError(t, err, text)
		require.JSONEq(t, want, string(got), text)
	}
}

// The name of a field above many conditions is repeated in each of them.
func TestNormalIsBounded(t *testing.T) {
	t.Parallel()
	below := func(name string) []byte {
		return []byte(`{"` + name + `":{"$and":[` + repeat(20_000, same(`{"$gt":1}`)) + `]}}`)
	}
	_, err := selector.Normal(below(strings.Repeat("x", 100_000)))
	require.EqualError(t, err, "invalid_selector: The field names of the normalised selector have more than 8388608 bytes.")
	_, err = selector.Normal(below("xxxxxxxxxx"))
	require.NoError(t, err)
}

// Sources that are no settee may know more than Parse.
func TestNormalAcceptsMoreThanParse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"a":{"$regex":"(a)\\1"}}`, `{"a":{"$mod":[0,1]}}`, `{"a..b":1}`, `{"$text":"x"}`,
		strings.Repeat(`{"$not":`, 3000) + `{"a":1}` + strings.Repeat("}", 3000),
	} {
		_, err := selector.Parse([]byte(text))
		require.Error(t, err, "%.100s", text)
		_, err = selector.Normal([]byte(text))
		require.NoError(t, err, "%.100s", text)
	}
}

func TestNormalRefuses(t *testing.T) {
	t.Parallel()
	// Behind the error is, in brackets, what the argument must be.
	tests := map[string]string{
		`{"$gt": 1}`:                              `invalid_selector: One or more conditions is missing a field name.`,
		`{"": 1}`:                                 `invalid_selector: One or more conditions is missing a field name.`,
		`{"$foo": 1}`:                             `invalid_operator: Invalid operator: $foo`,
		`{"a": {"$": 1}}`:                         `invalid_operator: Invalid operator: $`,
		`{"a": {"$where": "x"}}`:                  `not_supported: Unsupported operator: $where`,
		`{"$and": {}}`:                            `bad_arg: Bad argument for operator $and: {} (an array)`,
		`{"$or": 1}`:                              `bad_arg: Bad argument for operator $or: 1 (an array)`,
		`{"$nor": "x"}`:                           `bad_arg: Bad argument for operator $nor: "x" (an array)`,
		`{"$not": []}`:                            `bad_arg: Bad argument for operator $not: [] (an object)`,
		`{"a": {"$elemMatch": 1}}`:                `bad_arg: Bad argument for operator $elemMatch: 1 (an object)`,
		`{"a": {"$all": 1}}`:                      `bad_arg: Bad argument for operator $all: 1 (an array)`,
		`{"a": {"$exists": 1}}`:                   `bad_arg: Bad argument for operator $exists: 1 (a boolean)`,
		`{"a": {"$type": 1}}`:                     `bad_arg: Bad argument for operator $type: 1 (a string)`,
		`{"a": {"$regex": []}}`:                   `bad_arg: Bad argument for operator $regex: [] (a string)`,
		`{"a": {"$beginsWith": null}}`:            `bad_arg: Bad argument for operator $beginsWith: null (a string)`,
		`{"a": {"$mod": [1, 2.5]}}`:               `bad_arg: Bad argument for operator $mod: [1, 2.5] (an array of two integers)`,
		`{"a": {"$size": -1}}`:                    `bad_arg: Bad argument for operator $size: -1 (an integer of 0 or more)`,
		`{"a": {"$size": -99999999999999999999}}`: `bad_arg: Bad argument for operator $size: -99999999999999999999 (an integer of 0 or more)`,
		`{"$text": []}`:                           `bad_arg: Bad argument for operator $text: [] (a string, a number or a boolean)`,
		`{"a": {"$text": "x"}}`:                   `invalid_selector: $text must be at the top of the selector.`,
		`{"$default": {"$gt": 1}}`:                `invalid_selector: $text must be at the top of the selector.`,
		`{"$not": {"$text": "x"}}`:                `invalid_selector: $text must not be negated.`,
		`{"$and": [{"a": {"b": {"$x": 1}}}]}`:     `invalid_operator: Invalid operator: $x`,
		`{"a": 1, "b": {"$in": {}}}`:              `bad_arg: Bad argument for operator $in: {} (an array)`,
		`{"$nor": [{"$text": "x"}]}`:              `invalid_selector: $text must not be negated.`,
	}
	for text, want := range tests {
		_, err := selector.Normal([]byte(text))
		var wrong *selector.Error
		require.ErrorAs(t, err, &wrong, text)
		got := wrong.Error()
		if wrong.Want != "" {
			got += " (" + wrong.Want + ")"
		}
		require.Equal(t, want, got, text)
	}
}

// FuzzNormal checks that Normal never panics, and that a normal form is JSON.
func FuzzNormal(f *testing.F) {
	for _, seed := range []string{
		`{"$nor": [{"a": {"$not": {"$in": [1, -5e-7, 99999999999999999999]}}}]}`, `{"a": {"$elemMatch": {"$or": [1, {"$exists": true}]}}}`,
		`{"$default": {"$text": "x"}}`, `{"a": {"b": {"c": {"$gt": [1, 2, 255], "$lt": null}}}}`, `{"a": 1, "a": {"$size": 2}}`,
		strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000), `{"$and":[` + strings.Repeat(`{"a":[]},`, 3000) + `{}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		normal, err := selector.Normal(json.RawMessage(text))
		if err != nil {
			var wrong *selector.Error
			require.ErrorAs(t, err, &wrong)
			return
		}
		require.True(t, jsontext.Valid(normal), "%s", normal)
	})
}
