// Package kind checks the configuration of the cluster that `make e2e-kind` makes.
package kind
