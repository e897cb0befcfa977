package docjson_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
)

func TestIsMember(t *testing.T) {
	t.Parallel()
	for name, may := range map[string]bool{
		"": true, "a": true, "a_b": true, "_": false, "_id": false, "_a": false, "_replication": false,
		"_replication_state": true, "_replication_state_time": true, "_replication_state_reason": true,
		"_replication_id": true, "_replication_stats": true, "_replication_foo": false, "_replication_state_": false,
	} {
		require.Equal(t, may, docjson.IsMember(name), name)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, reason := range map[string]string{
		``: "it is not JSON", `[]`: "it is not a JSON object", `{"a":1`: "it is not JSON", "{\"\xff\":1}": "it is not UTF-8",
		`{"a":"\ud83d"}`: `it has half of a surrogate pair, \ud83d`, `{"b":{"c":1},"\u005fa":1}`: `bad special document member: "_a"`,
		`null`: "it is not a JSON object", `{"a":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}": "it is not JSON",
	} {
		_, err := docjson.Parse([]byte(text))
		require.ErrorIs(t, err, docjson.ErrInvalid, "%.100s", text)
		require.EqualError(t, err, "invalid document: "+reason, "%.100s", text)
		require.Panics(t, func() { docjson.Must(text) }, "%.100s", text)
	}
	text := []byte(" {\"a\":1,\"_replication_id\":\"x\", \"b\" : {\"_c\":2},\"\\u0061\":[3]}\n")
	body, err := docjson.Parse(text)
	require.NoError(t, err)
	require.Equal(t, string(text), string(body.Bytes()))
	require.Equal(t, len(text), body.Len())
	require.Equal(t, map[string]json.RawMessage{
		"a": json.RawMessage("[3]"), "_replication_id": json.RawMessage(`"x"`), "b": json.RawMessage(`{"_c":2}`),
	}, body.Values())
}

func TestZeroBody(t *testing.T) {
	t.Parallel()
	var body docjson.Body
	require.Equal(t, "{}", string(body.Bytes()))
	require.Equal(t, 2, body.Len())
	require.Empty(t, body.Values())
}

// FuzzParse reads bytes as the body of a document. An accepted body is an object without special members to another
// parser, too, with the same values.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,{"_b":"\"}"}],"c":"\\"}`, `{"_id":"x"}`, `{"\u005f":1}`, `{"a":"\ud83d\ude00"}`, `{"a":"\ud83d"}`,
		`{"_replication_state":"failed"}`, `[]`, `null`, "{\"\xff\":1}", `{"a":1,"a":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var members map[string]json.RawMessage
		valid := utf8.Valid(text) && json.Unmarshal(text, &members) == nil && members != nil
		for name := range members {
			valid = valid && docjson.IsMember(name)
		}
		body, err := docjson.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, docjson.ErrInvalid)
			if valid { // the other parser accepts half of a surrogate pair
				require.Contains(t, strings.ToLower(string(text)), `\ud`)
			}
			return
		}
		require.True(t, valid)
		require.Equal(t, text, body.Bytes())
		require.Equal(t, members, body.Values())
	})
}
