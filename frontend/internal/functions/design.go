package functions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"settee/frontend/internal/web"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
	"settee/pkg/script"
)

// member is the type that CouchDB wants of a member of design documents. Each name of the path is a member of the object
// before it; * stands for all members. Objects that are not there are not looked into.
type member struct {
	path string
	want string // as CouchDB says it
	is   func(json.RawMessage) bool
}

func isText(v json.RawMessage) bool   { return v[0] == '"' }
func isObject(v json.RawMessage) bool { return v[0] == '{' }
func isArray(v json.RawMessage) bool  { return v[0] == '[' }
func isFlag(v json.RawMessage) bool   { return v[0] == 't' || v[0] == 'f' }

func isTextOrObject(v json.RawMessage) bool { return isText(v) || isObject(v) }
func isTextOrArray(v json.RawMessage) bool  { return isText(v) || isArray(v) }

// members are the members that have a type, in the order in which CouchDB looks at them.
var members = []member{
	{"filters", "object", isObject},
	{"filters.*", "string or object", isTextOrObject},
	{"language", "string", isText},
	{"lists", "object", isObject},
	{"lists.*", "string or object", isTextOrObject},
	{"options", "object", isObject},
	{"options.include_design", "boolean", isFlag},
	{"options.local_seq", "boolean", isFlag},
	{"options.partitioned", "boolean", isFlag},
	{"rewrites", "array or string", isTextOrArray},
	{"shows", "object", isObject},
	{"shows.*", "string or object", isTextOrObject},
	{"updates", "object", isObject},
	{"updates.*", "string or object", isTextOrObject},
	{validateMember, "object or string", isTextOrObject},
	{"views", "object", isObject},
	{"views.lib", "object", isObject},
	{"views.*", "object", isObject},
	{"views.*.map", "string", isText},
	{"views.*.reduce", "string", isText},
}

// checkDesign returns why CouchDB refuses a design document with a body, as a [web.Failure]: a member has the wrong type,
// or a function of a view does not compile. Other functions are compiled when they are called.
func (f *Functions) checkDesign(ctx context.Context, db *docstore.Database, id string, body docjson.Body) error {
	object := body.Values()
	isQuery := string(object["language"]) == `"query"`
	for _, m := range members {
		if isQuery && m.path == "views.*.map" {
			m.want, m.is = "object", isObject
		}
		if at := m.wrong(object, strings.Split(m.path, "."), nil); at != nil {
			return invalid(fmt.Sprintf("`%s` field must have %s type", strings.Join(at, "."), m.want))
		}
	}
	views, err := viewsOf(object)
	if err != nil {
		return err
	}
	if string(memberOf(object["options"], "partitioned")) == "true" {
		return invalid("partitioned option cannot be true in a non-partitioned database.")
	}
	if l := object["language"]; l != nil && string(l) != `"`+language+`"` {
		return nil // CouchDB stores what it cannot run
	}
	return f.compile(ctx, db, id, views)
}

func invalid(reason string) error {
	return web.NewFailure(http.StatusBadRequest, "invalid_design_doc", reason)
}

// wrong returns the path of a member of the wrong type, or nil.
func (m member) wrong(object map[string]json.RawMessage, path, before []string) []string {
	names := []string{path[0]}
	if path[0] == "*" {
		names = slices.Sorted(maps.Keys(object))
	}
	for _, name := range names {
		value, at := object[name], append(slices.Clone(before), name)
		if value == nil {
			continue
		}
		if len(path) == 1 {
			if !m.is(value) {
				return at
			}
			continue
		}
		var inner map[string]json.RawMessage
		if json.Unmarshal(value, &inner) != nil {
			continue // the object itself has the wrong type, which an earlier member says
		}
		if wrong := m.wrong(inner, path[1:], at); wrong != nil {
			return wrong
		}
	}
	return nil
}

// memberOf returns a member of a JSON object, or nil.
func memberOf(object json.RawMessage, name string) json.RawMessage {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(object, &members) // no object has no members
	return members[name]
}

// view is a view, with the texts of its functions.
type view struct {
	name, mapText, reduceText string
	reduces                   bool
}

// viewsOf returns the views of a design document whose members have the right types, in the order in which CouchDB
// compiles them.
func viewsOf(object map[string]json.RawMessage) ([]view, error) {
	var all map[string]map[string]json.RawMessage
	if object["views"] != nil {
		if err := json.Unmarshal(object["views"], &all); err != nil {
			return nil, err
		}
	}
	delete(all, "lib")
	var views []view
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name]["map"] == nil {
			return nil, invalid("View `" + name + "` must contain map function")
		}
		v := view{name: name}
		v.mapText, _ = jsontext.String(all[name]["map"])
		v.reduceText, v.reduces = jsontext.String(all[name]["reduce"])
		views = append(views, v)
	}
	slices.SortStableFunc(views, func(a, b view) int { return cmp.Compare(a.mapText, b.mapText) })
	return views, nil
}

// compile compiles the functions of views.
func (f *Functions) compile(ctx context.Context, db *docstore.Database, id string, views []view) error {
	var sources, what []string
	for _, v := range views {
		sources, what = append(sources, v.mapText), append(what, "map function in the '"+v.name+"' view")
		switch {
		case !v.reduces:
		case strings.HasPrefix(v.reduceText, "_"):
			if err := checkBuiltin(v.reduceText); err != nil {
				return err
			}
		default:
			sources, what = append(sources, v.reduceText), append(what, "reduce function in the '"+v.name+"' view")
		}
	}
	if len(sources) == 0 {
		return nil
	}
	p := &script.Program{Owner: db.Instance(), Name: id, Source: prelude, Config: func() (string, error) {
		text, err := jsontext.Encode(setUp{Kind: "compile", Name: id, Sources: sources})
		return string(text), err
	}}
	out, err := f.call(ctx, p, "{}")
	var refused *web.Failure
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Code == "compilation_error" && out.Failed < len(what):
		return web.NewFailure(http.StatusBadRequest, refused.Code, "Compilation of the "+what[out.Failed]+" failed: "+refused.Reason)
	case refused.Code == "not_found":
		return web.NotFound(refused.Reason)
	}
	return err
}

// builtins are the names of reduce functions that CouchDB has; longer names are taken for them, too.
var builtins = []string{"_sum", "_count", "_stats", "_approx_count_distinct", "_first", "_last"}

// checkBuiltin returns why CouchDB has no such reduce function.
func checkBuiltin(name string) error {
	for _, known := range builtins {
		if strings.HasPrefix(name, known) {
			return nil
		}
	}
	for _, ranked := range []string{"_top_", "_bottom_"} {
		rank, is := strings.CutPrefix(name, ranked)
		if !is {
			continue
		}
		switch n, err := strconv.Atoi(rank); {
		case err != nil:
			return invalid("invalid rank reducer")
		case n < 1 || n > 100:
			return invalid("rank value must be between 1 and 100")
		}
		return nil
	}
	return invalid("`" + name + "` is not a supported reduce function.")
}
