package runner

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

const (
	// clientMinorVersion is the minor version of Kubernetes of the client library:
	// k8s.io/client-go in go.mod. Build information lacks it in some builds.
	clientMinorVersion = 37
	// maxVersionSkew is the maximum difference to the API server's minor version
	// (pkg/descheduler/runner.go, 0.36.0).
	maxVersionSkew = 3
)

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
