package replicator_test

import (
	"fmt"

	"settee/replicator"
)

// The body of a POST to _replicate has the replication id that CouchDB gives it for the same server uuid. An invalid body is
// refused, and the error names the field.
func Example() {
	request, err := replicator.ParseRequest(
		[]byte(`{"source":"http://a.example/db","target":"http://ann:secret@b.example/db","continuous":true}`), replicator.ParseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := request.Replication.ID("0123456789abcdef0123456789abcdef", "")
	fmt.Println(id, err)
	fmt.Println(request.Replication.Target)

	_, err = replicator.ParseRequest([]byte(`{"source":"http://a.example/db","target":7}`), replicator.ParseOptions{})
	fmt.Println(err)
	// Output:
	// 8789c6c78722a18509313a1d01fc549c+continuous <nil>
	// http://b.example/db/
	// parameter `target` must be the URL of a database, or an object with its `url`
}
