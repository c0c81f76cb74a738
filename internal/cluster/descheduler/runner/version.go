package runner

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"jettison/internal/base/retry"
)

const (
	// clientMinorVersion is the minor version of Kubernetes of the client library:
	// k8s.io/client-go in go.mod. Build information lacks it in some builds.
	clientMinorVersion = 37
	// maxVersionSkew is the maximum difference to the API server's minor version
	// (pkg/descheduler/runner.go, 0.36.0).
	maxVersionSkew = 3
)

// awaitAPI waits for the first answer of the API server, at most limit, and logs a version that may
// be unsupported.
func (d *descheduler) awaitAPI(ctx context.Context, query kubernetes.Interface,
	limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	api := discovery.ToServerVersionInterfaceWithContext(query.Discovery())
	for {
		err := checkVersion(limited, api)
		unreachable := d.o.Reach.Err()
		if err == nil {
			return nil
		}
		if unreachable == nil && limited.Err() == nil {
			//log: The API server is more than three minor versions apart from the client library, or its
			//  version cannot be read. Descheduling continues.
			//do: Use a release of jettison that matches the cluster's version.
			d.o.Log.Warn("API server version may be unsupported", "error", err)
			return nil
		}
		if !retry.Sleep(limited, time.Second) {
			return fmt.Errorf("deschedule: no answer for %v: %w", limit, cmp.Or(unreachable, err))
		}
	}
}

// checkVersion returns an error if the API server's version is out of range or unknown. As in the
// descheduler, callers only log it.
func checkVersion(ctx context.Context, api discovery.ServerVersionInterfaceWithContext) error {
	info, err := api.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("get API server version: %w", err)
	}
	server, err := version.ParseSemantic(info.GitVersion)
	if err != nil {
		return fmt.Errorf("parse API server version %q: %w", info.GitVersion, err)
	}
	if skew := int(server.Minor()) - clientMinorVersion; skew < -maxVersionSkew || skew > maxVersionSkew {
		return fmt.Errorf("API server version %s differs from client version 1.%d by more than %d minor "+
			"versions", info.GitVersion, clientMinorVersion,
			maxVersionSkew)
	}
	return nil
}
