//go:build tools

// Package tools pins the etcd that the API server of tests and the demo stores in.
package tools

import _ "go.etcd.io/etcd/server/v3"
