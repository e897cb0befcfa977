package config_test

import (
	"fmt"

	"settee/pkg/config"
)

// A flag overrides the environment and the default.
func Example() {
	cfg, warnings, err := config.Load(config.Options{Flags: []string{"replicator/max_jobs=200"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(config.MaxJobs.Get(cfg), config.MaxJobs.From(cfg), len(warnings))
	fmt.Println(config.MaxChurn.Get(cfg), config.MaxChurn.From(cfg))

	_, _, err = config.Load(config.Options{Flags: []string{"replicator/max_jobs=many"}})
	fmt.Println(err)
	// Output:
	// 200 --set 0
	// 100 default
	// [replicator] max_jobs (--set): "many" is refused: it must be a whole number from 0 to 2147483647
}
