package tuple_test

import (
	"bytes"
	"fmt"

	"settee/pkg/tuple"
)

func Example() {
	jobs := tuple.NewSubspace("jobs")
	ready := jobs.Sub("ready", "replication")

	early := ready.Pack("a/_replicator", 1_700_000_000, "id-2")
	late := ready.Pack("a/_replicator", 1_700_000_001, "id-1")
	fmt.Println(bytes.Compare(early, late))

	begin, end := ready.Range()
	fmt.Println(bytes.Compare(begin, early), bytes.Compare(late, end))

	key, err := ready.Unpack(early)
	fmt.Println(key, err)

	_, err = ready.Unpack(jobs.Pack("data", "replication", "id-1"))
	fmt.Println(err)
	// Output:
	// -1
	// -1 -1
	// [a/_replicator 1700000000 id-2] <nil>
	// tuple: key outside the subspace
}

func ExampleTuple_PackWithVersionstamp() {
	key, err := tuple.Tuple{"active", tuple.IncompleteVersionstamp(1)}.PackWithVersionstamp(nil)
	fmt.Printf("%x %v\n", key[:8], err)
	fmt.Printf("%x\n", key[8:len(key)-4]) // the type code, ten bytes to fill in, and the writer's two
	fmt.Printf("%x\n", key[len(key)-4:])  // where the ten bytes begin
	// Output:
	// 0261637469766500 <nil>
	// 33ffffffffffffffffffff0001
	// 09000000
}
