//go:build tools

// Package tools pins the API server and kubectl that tests and the demo use.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
