package replicator

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func decodeSelector(t *testing.T, text string) object {
	t.Helper()
	selector, err := decodeObjectJSON(json.RawMessage(text))
	require.NoError(t, err)
	return selector
}

// The expectations are the results of CouchDB 3.5.0's mango_selector:normalize, with sorted keys.
func TestNormalSelector(t *testing.T) {
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
		got, err := normalSelector(decodeSelector(t, text))
		require.NoError(t, err, text)
		require.Equal(t, decodeSelector(t, want), got, text)
	}
}

// The name of a field above many conditions is repeated in each of them.
func TestNormalSelectorIsBounded(t *testing.T) {
	t.Parallel()
	conditions := make([]any, 20_000)
	for i := range conditions {
		conditions[i] = single("$gt", int64(i))
	}
	_, err := normalSelector(single(strings.Repeat("x", 100_000), single("$and", conditions)))
	require.EqualError(t, err, "its field names are too long")

	deep := single("$gt", int64(1))
	for range 10_000 {
		deep = single("abcdefgh", deep)
	}
	_, err = normalSelector(deep)
	require.EqualError(t, err, "its field names are too long")

	_, err = normalSelector(single(strings.Repeat("x", 10), single("$and", conditions)))
	require.NoError(t, err)
}

func TestNormalSelectorRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		`{"$gt": 1}`:                              "an operator needs a field to apply to",
		`{"": 1}`:                                 "an operator needs a field to apply to",
		`{"$foo": 1}`:                             "`$foo` is not an operator",
		`{"a": {"$": 1}}`:                         "`$` is not an operator",
		`{"a": {"$where": "x"}}`:                  "operator `$where` is not supported",
		`{"$and": {}}`:                            "the argument of `$and` must be an array",
		`{"$or": 1}`:                              "the argument of `$or` must be an array",
		`{"$nor": "x"}`:                           "the argument of `$nor` must be an array",
		`{"$not": []}`:                            "the argument of `$not` must be an object",
		`{"a": {"$elemMatch": 1}}`:                "the argument of `$elemMatch` must be an object",
		`{"a": {"$all": 1}}`:                      "the argument of `$all` must be an array",
		`{"a": {"$exists": 1}}`:                   "the argument of `$exists` must be a boolean",
		`{"a": {"$type": 1}}`:                     "the argument of `$type` must be a string",
		`{"a": {"$regex": []}}`:                   "the argument of `$regex` must be a string",
		`{"a": {"$beginsWith": null}}`:            "the argument of `$beginsWith` must be a string",
		`{"a": {"$mod": [1, 2.5]}}`:               "the argument of `$mod` must be an array of two integers",
		`{"a": {"$size": -1}}`:                    "the argument of `$size` must be an integer of 0 or more",
		`{"a": {"$size": -99999999999999999999}}`: "the argument of `$size` must be an integer of 0 or more",
		`{"$text": []}`:                           "the argument of `$text` must be a string, a number or a boolean",
		`{"a": {"$text": "x"}}`:                   "`$text` must stand at the top of a selector",
		`{"$default": {"$gt": 1}}`:                "`$text` must stand at the top of a selector",
		`{"$not": {"$text": "x"}}`:                "`$text` must not be negated",
		`{"$and": [{"a": {"b": {"$x": 1}}}]}`:     "`$x` is not an operator",
		`{"a": 1, "b": {"$in": {}}}`:              "the argument of `$in` must be an array",
		`{"$nor": [{"$text": "x"}]}`:              "`$text` must not be negated",
	}
	for text, want := range tests {
		_, err := normalSelector(decodeSelector(t, text))
		require.EqualError(t, err, want, text)
	}
}

// FuzzSelector checks that normalising never panics, that its result can be encoded for an id,
// and that JSON is read as encoding/json reads it.
func FuzzSelector(f *testing.F) {
	for _, seed := range []string{
		`{"$nor": [{"a": {"$not": {"$in": [1, -5e-7, 99999999999999999999]}}}]}`, `{"a": {"$elemMatch": {"$or": [1, {"$exists": true}]}}}`,
		`{"$default": {"$text": "x"}}`, `{"a": {"b": {"c": {"$gt": [1, 2, 255], "$lt": null}}}}`, `{"a": 1, "a": {"$size": 2}}`,
		`{"a": {"$mod": [` + strings.Repeat("7", 1000) + `, -` + strings.Repeat("7", 1001) + `]}}`,
		strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000), `{"$and":[` + strings.Repeat(`{"a":[]},`, 3000) + `{}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !validJSON(text) {
			return
		}
		selector, err := decodeObjectJSON(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		var plain map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &plain))
		require.Len(t, selector, len(plain))
		for _, m := range selector {
			require.Contains(t, plain, m.name)
		}
		normal, err := normalSelector(selector)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NotEmpty(t, encodeTerm(normal))
	})
}
