package selector_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"settee/pkg/selector"
)

func match(t *testing.T, sel, doc string) bool {
	t.Helper()
	s, err := selector.Parse([]byte(sel))
	require.NoError(t, err, sel)
	ok, err := s.Match(t.Context(), []byte(doc))
	require.NoError(t, err, doc)
	return ok
}

// TestConditions checks conditions on a field x, and that $not of them is the opposite for each
// existing value.
func TestConditions(t *testing.T) {
	tests := []struct {
		cond     string
		match    []string
		mismatch []string
	}{
		{`5`, []string{`5`, `5.0`, `50e-1`, `0.5E+1`}, []string{`6`, `"5"`, `[5]`, `null`}},
		{`null`, []string{`null`}, []string{`0`, `false`, `""`, `[]`, `{}`}},
		{`true`, []string{`true`}, []string{`false`, `1`, `"true"`}},
		{`"é"`, []string{`"é"`, `"e\u0301"`, `"\u00e9"`, `"é\u200b"`}, []string{`"e"`, `"É"`}},
		{`[1, [2]]`, []string{`[1,[2]]`, `[1.0,[2]]`}, []string{`[1,[2],3]`, `[1]`, `[[2],1]`}},
		{`{}`, []string{`{}`}, []string{`{"a":1}`, `[]`, `null`}},
		{`[]`, []string{`[]`}, []string{`{}`, `[1]`, `null`}},

		{`{"$lt": 5}`, []string{`4`, `-1e400`, `null`, `true`}, []string{`5`, `6`, `"4"`, `[4]`, `{}`}},
		{`{"$lt": "hello"}`, []string{`"held"`, `"Held"`, `5`}, []string{`"hello"`, `"Hello"`, `"help"`, `[]`}},
		{`{"$lt": [1, 2, 3]}`, []string{`[1,2,2]`, `[1,2]`, `"z"`}, []string{`[1,2,3]`, `[1,2,4]`, `[1,3]`, `{}`}},
		{`{"$lte": 5}`, []string{`4`, `5`, `null`}, []string{`6`, `5.00000000000000000001`}},
		{`{"$lte": null}`, []string{`null`}, []string{`false`, `0`}},
		{`{"$eq": {"a": 1, "b": 2}}`, []string{`{"a":1,"b":2}`, `{"a":7,"a":1,"b":2}`}, []string{`{"b":2,"a":1}`, `{"a":1}`}},
		{`{"$eq": {"$gt": 5}}`, []string{`{"$gt":5}`}, []string{`6`}},
		{`{"$ne": 5}`, []string{`6`, `null`, `"5"`, `[5]`}, []string{`5`, `5.0`}},
		{`{"$gte": 9007199254740993}`, []string{`9007199254740993`, `9007199254740994`, `""`}, []string{`9007199254740992`, `true`}},
		{`{"$gt": null}`, []string{`false`, `0`, `""`, `[]`, `{}`}, []string{`null`}},
		{`{"$gt": 3, "$lt": 7}`, []string{`6`}, []string{`3`, `7`, `"5"`}},
		{`{"$and": [{"$gt": 3}, {"$lt": 7}]}`, []string{`6`}, []string{`2`, `9`}},
		{`{"$or": [{"$lt": 3}, {"$gt": 7}, 5]}`, []string{`2`, `9`, `5`}, []string{`6`}},
		{`{"$nor": [{"$lt": 3}, {"$gt": 7}]}`, []string{`6`}, []string{`2`, `9`}},
		{`{"$not": {"$gt": 3}}`, []string{`3`, `null`}, []string{`4`, `""`}},
		{`{"$not": {}}`, []string{`1`, `{"a":1}`}, []string{`{}`}},

		{`{"$exists": true}`, []string{`null`, `0`, `false`}, nil},
		{`{"$exists": false}`, nil, []string{`null`, `0`, `false`}},
		{`{"$type": "null"}`, []string{`null`}, []string{`false`, `{}`}},
		{`{"$type": "boolean"}`, []string{`true`, `false`}, []string{`0`, `null`}},
		{`{"$type": "number"}`, []string{`0`, `-1.5e3`}, []string{`"1"`, `[1]`}},
		{`{"$type": "string"}`, []string{`""`, `"a"`}, []string{`1`, `[]`}},
		{`{"$type": "array"}`, []string{`[]`, `[1]`}, []string{`{}`, `"a"`}},
		{`{"$type": "object"}`, []string{`{}`, `{"a":1}`}, []string{`[]`, `null`}},
		{`{"$type": "integer"}`, nil, []string{`1`, `"integer"`}},

		{`{"$in": []}`, nil, []string{`0`, `[]`, `null`}},
		{`{"$in": [42, false, "bar", [["n"], "l"], {"b": 2}]}`,
			[]string{`42`, `42.0`, `false`, `"bar"`, `{"b":2}`, `[0,42]`, `[0,{"b":2}]`, `[0,[["n"],"l"]]`},
			[]string{`43`, `"bars"`, `{"b":2,"c":3}`, `[]`, `[["n"],"l"]`}},
		{`{"$nin": []}`, []string{`0`, `[]`, `null`}, nil},
		{`{"$nin": [42, "bar", [1]]}`, []string{`43`, `[]`, `[43]`, `[1]`}, []string{`42`, `[0,42]`, `"bar"`, `[[1]]`}},

		{`{"$all": []}`, nil, []string{`[]`, `[42]`, `{}`}},
		{`{"$all": [1, 2]}`, []string{`[2,1]`, `[0,2,3,1]`}, []string{`[1]`, `[1.0,2]`, `[]`, `1`, `[[1,2]]`}},
		{`{"$all": [[1, 2]]}`, []string{`[1,2]`, `[1.0,2]`, `[5,[1,2]]`}, []string{`[2,1]`, `[1,2,3]`, `[5,[1.0,2]]`}},
		{`{"$all": ["é"]}`, []string{`["é"]`, `["\u00e9"]`}, []string{`["e\u0301"]`, `"é"`}},
		{`{"$all": [{"a": 1}]}`, []string{`[{"a":1}]`}, []string{`[{"a":1,"b":2}]`, `{"a":1}`}},
		{`{"$all": [null, true, {}]}`, []string{`[{},true,null]`}, []string{`[{},false,null]`, `[[],true,null]`}},

		{`{"$size": 0}`, []string{`[]`}, []string{`[1]`, `{}`, `""`, `0`}},
		{`{"$size": 3}`, []string{`[0,[1,2],{}]`}, []string{`[0,0]`, `"fun"`}},
		{`{"$size": 100000000000000000000}`, nil, []string{`[]`}},
		{`{"$mod": [28, 1]}`, []string{`1`, `29`, `57`}, []string{`58`, `-29`, `29.0`, `2.9e1`, `"57"`, `null`}},
		{`{"$mod": [-3, -1]}`, []string{`-1`, `-4`}, []string{`1`, `2`, `4`}},
		{`{"$mod": [1000000007, 6]}`, []string{`999999999999999999999999999999997605`}, []string{`999999999999999999999999999999997606`}},
		{`{"$mod": [100000000000000000000, 1]}`, []string{`1`, `700000000000000000001`}, []string{`0`, `700000000000000000011`}},

		{`{"$regex": "^[0-9a-f]+$"}`, []string{`"3a0df5e"`, `"3a\n"`}, []string{`""`, `"3g"`, `"3a\n\n"`, `42`, `["a"]`}},
		{`{"$regex": "(?i)new.*"}`, []string{`"a NEW b"`}, []string{`"ne w"`}},
		{`{"$regex": "^..$"}`, []string{`"ab"`, `"é"`}, []string{`"aé"`, `"a"`}},
		{`{"$regex": "^é+$"}`, []string{`"é"`}, []string{`"e"`, `"éé"`}},
		{`{"$regex": "^(?!_design/)"}`, []string{`"a"`, `""`, `"a_design/"`}, []string{`"_design/a"`, `1`}},
		{`{"$regex": "(?i)^(?=.*\\d)(?=.*[)(|\\]x[:space:]])(?!.*(z|(y))).{2,4}$"}`, []string{`"1 a"`, `"X1"`, `"1]"`, `"1(\n"`}, []string{`"1a"`, `" a"`, `"1x345"`, `"1xZ"`, `"1y)"`}},
		{`{"$regex": "\\A(?!a|b)"}`, []string{`"c"`, `""`}, []string{`"a"`, `"b"`}},

		{`{"$beginsWith": "foo"}`, []string{`"foo"`, `"food"`, `"f\u006fo"`}, []string{`"more food"`, `"fo"`, `"Foo"`, `42`, `["foo"]`}},
		{`{"$beginsWith": ""}`, []string{`""`, `"a"`, `"\u0301"`}, []string{`null`}},
		{`{"$beginsWith": "e"}`, []string{`"ea"`, `"e^"`, `"e😀"`}, []string{`"e\u0301"`, `"é"`, `"e\u200d"`}},
		{`{"$beginsWith": "\r"}`, []string{`"\ra"`}, []string{`"\r\n"`}},
		{`{"$beginsWith": "\t"}`, []string{`"\ta"`, `"\t\u0301"`}, nil},
		{`{"$beginsWith": "👍"}`, []string{`"👍"`, `"👍👍"`}, []string{`"👍🏽"`}},
		{`{"$beginsWith": "🇩"}`, []string{`"🇩"`, `"🇩a"`}, []string{`"🇩🇪"`}},

		{`{"$elemMatch": {"$gt": 5}}`, []string{`[1,6]`, `["a"]`}, []string{`[]`, `[5]`, `6`, `{"a":6}`}},
		{`{"$elemMatch": {"a": 1, "b.c": {"$exists": true}}}`, []string{`[0,{"a":1,"b":{"c":null}}]`}, []string{`[{"a":1},{"b":{"c":1}}]`}},
		{`{"$elemMatch": {}}`, []string{`[{}]`}, []string{`[{"a":1}]`, `[]`}},
		{`{"$elemMatch": {"$not": {"a": 1}}}`, []string{`[{}]`, `[{"a":2}]`, `[1]`}, []string{`[{"a":1}]`, `[]`}},
		{`{"$elemMatch": {"$nor": [{"a": 1}, {"b": 1}]}}`, []string{`[{"a":1},{"a":2}]`}, []string{`[{"a":1},{"b":1}]`}},
		{`{"$elemMatch": {"$elemMatch": {"$eq": 1}}}`, []string{`[[2],[0,1]]`}, []string{`[1]`, `[[[1]]]`}},
		{`{"$allMatch": {"$eq": 0}}`, []string{`[0]`, `[0,0.0]`}, []string{`[]`, `[0,1]`, `0`}},
		{`{"$allMatch": {"a": {"$mod": [2, 1]}}}`, []string{`[{"a":1},{"a":3}]`}, []string{`[{"a":1},{"a":2}]`, `[{"a":1},{}]`}},
		{`{"$keyMapMatch": {"$regex": "^[a-z]+$"}}`, []string{`{"a":1}`, `{"b4":1,"b":2}`}, []string{`{"b4":2}`, `{}`, `["a"]`}},
		{`{"$keyMapMatch": {"a": 1}}`, nil, []string{`{"a":1}`}},

		{`{"a": 1}`, []string{`{"a":1}`, `{"b":2,"a":1}`, `{"a":2,"a":1}`, `{"\u0061":1}`}, []string{`{"a":2}`, `{"a":1,"a":2}`}},
	}
	for _, test := range tests {
		plain := fmt.Sprintf(`{"x": %s}`, test.cond)
		twice := fmt.Sprintf(`{"$not": {"$nor": [%s]}}`, plain)
		negated := fmt.Sprintf(`{"x": {"$not": {"x": %s}}}`, test.cond)
		for want, values := range map[bool][]string{true: test.match, false: test.mismatch} {
			for _, v := range values {
				doc := fmt.Sprintf(`{"_id": "d", "x": %s}`, v)
				assert.Equal(t, want, match(t, plain, doc), "%s of %s", plain, doc)
				assert.Equal(t, want, match(t, twice, doc), "%s of %s", twice, doc)
				doc = fmt.Sprintf(`{"x": {"x": %s}}`, v)
				// A path into the value is not found with a negation either.
				if !strings.HasPrefix(test.cond, `{"a"`) {
					assert.Equal(t, !want, match(t, negated, doc), "%s of %s", negated, doc)
				}
			}
		}
	}
}

// TestSelectors checks combinations, paths and missing fields.
func TestSelectors(t *testing.T) {
	tests := []struct {
		sel  string
		doc  string
		want bool
	}{
		{`{}`, `{}`, true},
		{`{}`, `{"a":1}`, true},
		{`{"a": 1, "b": {"$gt": 1}}`, `{"b":2,"a":1}`, true},
		{`{"a": 1, "b": {"$gt": 1}}`, `{"b":1,"a":1}`, false},
		{` { "a" : 1 } `, " {\t\"a\" :\r\n1 } ", true},
		{`{"a": 2, "a": 1}`, `{"a":1}`, true},

		// Missing fields.
		{`{"a": null}`, `{}`, false},
		{`{"a": {"$ne": 1}}`, `{}`, false},
		{`{"a": {"$lte": null}}`, `{}`, false},
		{`{"a": {"$gte": null}}`, `{}`, false},
		{`{"a": {"$nin": [1]}}`, `{}`, false},
		{`{"a": {"$nin": []}}`, `{}`, false},
		{`{"a": {"$exists": true}}`, `{}`, false},
		{`{"a": {"$exists": false}}`, `{}`, true},
		{`{"a": {"$not": {"$exists": true}}}`, `{}`, true},
		{`{"a": {"$not": {"$exists": false}}}`, `{}`, false},
		{`{"$not": {"a": 1}}`, `{}`, false},
		{`{"$not": {"a": {"$regex": "a"}}}`, `{}`, false},
		{`{"$not": {"a": {"$size": 1}}}`, `{}`, false},
		{`{"$nor": [{"a": 1}]}`, `{}`, false},
		{`{"$nor": [{"a": 1}]}`, `{"a":2}`, true},
		{`{"a": {"$not": {"$exists": true, "$eq": 0}}}`, `{}`, true},
		{`{"a": {"$not": {"$elemMatch": {"$eq": 0}}}}`, `{}`, false},
		{`{"a": {"$not": {"$elemMatch": {"$eq": 0}}}}`, `{"a":1}`, true},

		// Combinations.
		{`{"$and": []}`, `{}`, true},
		{`{"$or": []}`, `{}`, true},
		{`{"$nor": []}`, `{}`, true},
		{`{"$not": {"$and": []}}`, `{}`, true},
		{`{"$not": {"$or": []}}`, `{}`, true},
		{`{"$not": {"$nor": []}}`, `{}`, true},
		{`{"a": {"$or": []}}`, `{}`, true},
		{`{"a": 1, "$or": []}`, `{"a":1}`, true},
		{`{"a": {"$elemMatch": {"$nor": []}}}`, `{"a":[1]}`, true},
		{`{"$or": [{"a": 1}, {"b": 1}]}`, `{"b":1}`, true},
		{`{"$or": [{"a": 1}, {"b": 1}]}`, `{"b":2}`, false},
		{`{"$not": {"$and": [{"a": 1}, {"b": 1}]}}`, `{"a":1,"b":2}`, true},
		{`{"$not": {"$and": [{"a": 1}, {"b": 1}]}}`, `{"a":1}`, false},
		{`{"$not": {"$not": {"a": 1}}}`, `{"a":1}`, true},
		{`{"a": {"$or": [{"b": 1}, {"c": {"$gt": 1}}]}}`, `{"a":{"c":2}}`, true},
		{`{"a": {"$not": {"b": 1}}}`, `{"a":{"b":2}}`, true},
		{`{"a": {"$not": {"b": 1}}}`, `{"a":{}}`, false},
		{`{"$and": [{}]}`, `{}`, true}, // an empty element requires an empty document
		{`{"$and": [{}]}`, `{"a":1}`, false},
		{`{"$and": [{"$type": "object"}]}`, `{"a":1}`, true},
		{`{"$keyMapMatch": {"$eq": "a"}, "a": 1}`, `{"a":1}`, true},

		// Paths.
		{`{"a.b": 1}`, `{"a":{"b":1}}`, true},
		{`{"a": {"b.c": 1}}`, `{"a":{"b":{"c":1}}}`, true},
		{`{"a": {"b": {}}}`, `{"a":{"b":{}}}`, true},
		{`{"a.b": 1}`, `{"a.b":1}`, false},
		{`{"a\\.b": 1}`, `{"a.b":1}`, true},
		{`{"a\\.b.c\\.d": 1}`, `{"a.b":{"c.d":1}}`, true},
		{`{"a\\\\.b": 1}`, `{"a.b":1}`, true}, // all backslashes are removed
		{`{"\\$a": 1}`, `{"$a":1}`, true},
		{`{"\\": 1}`, `{"":1}`, true},
		{`{"": {"a": 1}}`, `{"a":1}`, true},
		{`{"é.ü": 1}`, `{"\u00e9":{"ü":1}}`, true},
		{`{"a.1": 2}`, `{"a":[1,2]}`, true},
		{`{"a.1.b": 2}`, `{"a":[[1],{"b":2}]}`, true},
		{`{"a.+1": 2}`, `{"a":[1,2]}`, true},
		{`{"a.01": 2}`, `{"a":[1,2]}`, true},
		{`{"a.-0": 1}`, `{"a":[1,2]}`, true},
		{`{"a.-1": 2}`, `{"a":[1,2]}`, false},
		{`{"a.1": 2}`, `{"a":{"1":2}}`, true},
		{`{"a.x": {"$exists": false}}`, `{"a":{}}`, true},
		{`{"a.x.y": {"$exists": false}}`, `{"a":{}}`, true},
		{`{"a.x": {"$exists": false}}`, `{"a":1}`, false},
		{`{"a.x": {"$exists": false}}`, `{"a":[1]}`, false},
		{`{"a.7": {"$exists": false}}`, `{"a":[1]}`, false},
		{`{"a.99999999999999999999": {"$exists": false}}`, `{"a":[1]}`, false},
		{`{"a.x": {"$not": {"$exists": true}}}`, `{"a":"b"}`, false},

		// _id compares as Erlang terms do, strings by their bytes.
		{`{"_id": {"$gt": "a"}}`, `{"_id":"B"}`, false},
		{`{"b": {"$gt": "a"}}`, `{"b":"B"}`, true},
		{`{"_id": {"$gt": null}}`, `{"_id":"a"}`, true},
		{`{"_id": {"$gt": {}}}`, `{"_id":"a"}`, true},
		{`{"_id": {"$gt": [1]}}`, `{"_id":"a"}`, true},
		{`{"_id": "é"}`, `{"_id":"e\u0301"}`, false},
		{`{"_id": {"$in": ["é"]}}`, `{"_id":"é"}`, true},
		{`{"\\_id": "é"}`, `{"_id":"e\u0301"}`, true},
		{`{"a._id": "é"}`, `{"a":{"_id":"e\u0301"}}`, true},
		{`{"a": {"$elemMatch": {"_id": "é"}}}`, `{"a":[{"_id":"e\u0301"}]}`, false},
		{`{"a": {"$elemMatch": {"_id": {"$lt": null}}}}`, `{"a":[{"_id":1}]}`, true},
		{`{"a": {"$elemMatch": {"_id": {"$lt": null}}}}`, `{"a":[{"_id":false}]}`, true},
		{`{"a": {"$elemMatch": {"_id": {"$gt": null}}}}`, `{"a":[{"_id":true}]}`, true},
		{`{"a": {"$elemMatch": {"_id": {"$lt": [1]}}}}`, `{"a":[{"_id":{"z":1}}]}`, true},
		{`{"a": {"$elemMatch": {"_id": {"$lt": {"b": 1}}}}}`, `{"a":[{"_id":{"a":"a"}}]}`, true},
		{`{"a": {"$elemMatch": {"_id": {"$lt": ["a", 2]}}}}`, `{"a":[{"_id":["a",1.5]}]}`, true},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, match(t, test.sel, test.doc), "%s of %s", test.sel, test.doc)
	}
}

func TestErrors(t *testing.T) {
	deep := func(levels int) string {
		return strings.Repeat(`{"$not":`, levels) + `{"a":1}` + strings.Repeat(`}`, levels)
	}
	tests := []struct{ sel, name, reason string }{
		{`{"v": {"$nope": 1}}`, "invalid_operator", "Invalid operator: $nope"},
		{`{"$": 1}`, "invalid_operator", "Invalid operator: $"},
		{`{"$where": "a"}`, "not_supported", "Unsupported operator: $where"},
		{`{"a": {"$geoWithin": 1}}`, "not_supported", "Unsupported operator: $geoWithin"},
		{`{"a": {"$geoIntersects": 1}}`, "not_supported", "Unsupported operator: $geoIntersects"},
		{`{"a": {"$near": 1}}`, "not_supported", "Unsupported operator: $near"},
		{`{"a": {"$nearSphere": 1}}`, "not_supported", "Unsupported operator: $nearSphere"},
		{`{"$text": "a"}`, "not_supported", "Unsupported operator: $text"},

		{`{"$and": {"a": 1}}`, "bad_arg", `Bad argument for operator $and: {"a": 1}`},
		{`{"$or": 1}`, "bad_arg", "Bad argument for operator $or: 1"},
		{`{"$nor": null}`, "bad_arg", "Bad argument for operator $nor: null"},
		{`{"$not": [{"a": 1}]}`, "bad_arg", `Bad argument for operator $not: [{"a": 1}]`},
		{`{"a": {"$not": 5}}`, "bad_arg", "Bad argument for operator $not: 5"},
		{`{"a": {"$in": "b"}}`, "bad_arg", `Bad argument for operator $in: "b"`},
		{`{"a": {"$nin": {}}}`, "bad_arg", "Bad argument for operator $nin: {}"},
		{`{"a": {"$all": 1}}`, "bad_arg", "Bad argument for operator $all: 1"},
		{`{"a": {"$exists": 1}}`, "bad_arg", "Bad argument for operator $exists: 1"},
		{`{"a": {"$type": null}}`, "bad_arg", "Bad argument for operator $type: null"},
		{`{"a": {"$size": -1}}`, "bad_arg", "Bad argument for operator $size: -1"},
		{`{"a": {"$size": -100000000000000000000}}`, "bad_arg", "Bad argument for operator $size: -100000000000000000000"},
		{`{"a": {"$size": 1.0}}`, "bad_arg", "Bad argument for operator $size: 1.0"},
		{`{"a": {"$size": "1"}}`, "bad_arg", `Bad argument for operator $size: "1"`},
		{`{"a": {"$mod": 2}}`, "bad_arg", "Bad argument for operator $mod: 2"},
		{`{"a": {"$mod": [2]}}`, "bad_arg", "Bad argument for operator $mod: [2]"},
		{`{"a": {"$mod": [2, 1, 0]}}`, "bad_arg", "Bad argument for operator $mod: [2, 1, 0]"},
		{`{"a": {"$mod": [2, "1"]}}`, "bad_arg", `Bad argument for operator $mod: [2, "1"]`},
		{`{"a": {"$mod": [2.0, 1]}}`, "bad_arg", "Bad argument for operator $mod: [2.0, 1]"},
		{`{"a": {"$mod": [0, 1]}}`, "bad_arg", "Bad argument for operator $mod: [0, 1]"},
		{`{"a": {"$regex": 1}}`, "bad_arg", "Bad argument for operator $regex: 1"},
		{`{"a": {"$regex": "a("}}`, "bad_arg", "Bad argument for operator $regex: \"a(\" (error parsing regexp: missing closing ): `a(`)"},
		{`{"a": {"$regex": "(a)\\1"}}`, "bad_arg", "Bad argument for operator $regex: \"(a)\\\\1\" (error parsing regexp: invalid escape sequence: `\\1`)"},
		{`{"a": {"$beginsWith": 1}}`, "bad_arg", "Bad argument for operator $beginsWith: 1"},
		{`{"a": {"$elemMatch": 1}}`, "bad_arg", "Bad argument for operator $elemMatch: 1"},
		{`{"a": {"$elemMatch": {"$elemMatch": 1}}}`, "bad_arg", "Bad argument for operator $elemMatch: 1"},
		{`{"a": {"$allMatch": [1]}}`, "bad_arg", "Bad argument for operator $allMatch: [1]"},
		{`{"a": {"$keyMapMatch": "b"}}`, "bad_arg", `Bad argument for operator $keyMapMatch: "b"`},
		{`{"$or": ["` + strings.Repeat("é", 200) + `", {"$in": "` + strings.Repeat("é", 200) + `"}]}`, "bad_arg",
			`Bad argument for operator $in: "` + strings.Repeat("é", 99) + "..."},

		{`{"a..b": 1}`, "invalid_field_name", "Invalid field name: a..b"},
		{`{"a.": 1}`, "invalid_field_name", "Invalid field name: a."},
		{`{"$or": [{"a": {".b": 1}}]}`, "invalid_field_name", "Invalid field name: a..b"},
		{`{"a": {"": 1}}`, "invalid_field_name", "Invalid field name: a."},
		{`{"": 1}`, "invalid_selector", "One or more conditions is missing a field name."},
		{`{"$eq": 1}`, "invalid_selector", "One or more conditions is missing a field name."},
		{`{"$not": {}}`, "invalid_selector", "One or more conditions is missing a field name."},
		{`{"$elemMatch": {"a": 1}}`, "invalid_selector", "One or more conditions is missing a field name."},
		{deep(100), "invalid_selector", "Selector is nested more than 100 levels deep."},
		{`{"a": {"$elemMatch": ` + deep(98) + `}}`, "invalid_selector", "Selector is nested more than 100 levels deep."},

		{`5`, "invalid_selector_json", "Selector must be a JSON object, not: 5"},
		{`[{"a":1}]`, "invalid_selector_json", `Selector must be a JSON object, not: [{"a":1}]`},
		{``, "bad_request", "invalid UTF-8 JSON"},
		{`{"a": 1`, "bad_request", "invalid UTF-8 JSON"},
		{"{\"a\": \"\xff\"}", "bad_request", "invalid UTF-8 JSON"},
	}
	for _, test := range tests {
		_, err := selector.Parse([]byte(test.sel))
		var e *selector.Error
		if assert.ErrorAs(t, err, &e, test.sel) {
			assert.Equal(t, [2]string{test.name, test.reason}, [2]string{e.Name, e.Reason}, test.sel)
			assert.EqualError(t, err, test.name+": "+test.reason)
		}
	}

	_, err := selector.Parse([]byte(deep(99)))
	assert.NoError(t, err)
}

// TestUnsupportedLookaround checks that expressions that need more than linear time are refused.
func TestUnsupportedLookaround(t *testing.T) {
	for _, expr := range []string{
		`(?!a)b`, `a(?!b)`, `^(?!a)b|c`, `^(?!a)(b|(?!c))`, `^a|(?!b)`, `(?m)^(?!a)`, `^(?!a`, `^(?!a)*`,
		`(?<=a)b`, `(?<!a)b`, `^(?!(?=a)b)`, `^(?!\Q)\E)`, `^(?!a)b)`, `^(?![a)`, `^(?!a)(?<=b)`,
	} {
		quoted, err := json.Marshal(expr)
		require.NoError(t, err)
		_, err = selector.Parse([]byte(`{"a": {"$regex": ` + string(quoted) + `}}`))
		require.ErrorContains(t, err, "bad_arg: Bad argument for operator $regex: ", expr)
	}
	_, err := selector.Parse([]byte(`{"a": {"$regex": "a(?!b)"}}`))
	assert.ErrorContains(t, err, "lookaround")
}

func TestMatchRefusesOtherValues(t *testing.T) {
	s, err := selector.Parse([]byte(`{"a": 1}`))
	require.NoError(t, err)
	for _, doc := range []string{``, `{`, `{"a":1}{}`, `{"a":01}`, "{\"a\":\"\xc3\"}", strings.Repeat("[", 20000)} {
		_, err := s.Match(t.Context(), []byte(doc))
		require.EqualError(t, err, "matching a document: invalid UTF-8 JSON", doc)
	}
	for _, doc := range []string{`null`, `[{"a":1}]`, `"a"`, `1`} {
		_, err := s.Match(t.Context(), []byte(doc))
		require.EqualError(t, err, "matching a document: not a JSON object", doc)
	}
}

// TestRecordedExchanges checks a selector and an error against CouchDB's.
func TestRecordedExchanges(t *testing.T) {
	read := func(name string) (sel json.RawMessage, answer []byte) {
		path := filepath.Join("..", "..", "testdata", "wire", name)
		request, err := os.Open(path + ".request")
		require.NoError(t, err)
		defer request.Close()
		r, err := http.ReadRequest(bufio.NewReader(request))
		require.NoError(t, err)
		var body struct {
			Selector json.RawMessage `json:"selector"`
		}
		require.NoError(t, json.NewDecoder(r.Body).Decode(&body))

		response, err := os.Open(path + ".response")
		require.NoError(t, err)
		defer response.Close()
		w, err := http.ReadResponse(bufio.NewReader(response), r)
		require.NoError(t, err)
		defer w.Body.Close()
		answer, err = io.ReadAll(w.Body)
		require.NoError(t, err)
		return body.Selector, answer
	}

	sel, answer := read("040-changes-selector")
	var changes struct {
		Results []struct {
			Doc json.RawMessage `json:"doc"`
		} `json:"results"`
	}
	require.NoError(t, json.Unmarshal(answer, &changes))
	require.NotEmpty(t, changes.Results)
	for _, change := range changes.Results {
		assert.True(t, match(t, string(sel), string(change.Doc)), "%s", change.Doc)
	}

	sel, answer = read("041-changes-selector-bad")
	var refusal struct {
		Reason string `json:"reason"`
	}
	require.NoError(t, json.Unmarshal(answer, &refusal))
	_, err := selector.Parse(sel)
	var e *selector.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, refusal.Reason, e.Reason)
}

// TestConcurrentMatches is for the race detector.
func TestConcurrentMatches(t *testing.T) {
	sel := []byte(`{"s": {"$gte": "b\u00e9", "$ne": {"a": "\u00e9"}}, "r": {"$regex": "^(?!x)y"}, "n": {"$mod": [7, 3]}}`)
	s, err := selector.Parse(sel)
	require.NoError(t, err)
	clear(sel) // the caller may overwrite the text
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			for j := range 100 {
				doc := fmt.Sprintf(`{"s": "c\u00e9%d", "r": "y", "n": %d}`, i, j)
				ok, err := s.Match(t.Context(), []byte(doc))
				if err != nil {
					return err
				}
				assert.Equal(t, j%7 == 3, ok, doc)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}
