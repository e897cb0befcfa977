package selector_test

import (
	"context"
	"fmt"

	"settee/pkg/selector"
)

func Example() {
	s, err := selector.Parse([]byte(`{"type": "book", "year": {"$gte": 1990}, "_id": {"$regex": "^(?!_design/)"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, doc := range []string{
		`{"_id": "1", "type": "book", "year": 1999}`,
		`{"_id": "2", "type": "book", "year": 1899}`,
		`{"_id": "3", "type": "book"}`,
	} {
		ok, err := s.Match(context.Background(), []byte(doc))
		fmt.Println(ok, err)
	}

	_, err = selector.Parse([]byte(`{"year": {"$size": "many"}}`))
	fmt.Println(err)

	// Output:
	// true <nil>
	// false <nil>
	// false <nil>
	// bad_arg: Bad argument for operator $size: "many"
}
