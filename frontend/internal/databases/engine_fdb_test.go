//go:build fdb

package databases_test

import _ "settee/pkg/kv/fdbkv" // the tests run there too, on the cluster that kvtest.Cluster opens
