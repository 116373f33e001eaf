#!/bin/sh
# Type-check the dashboards' JSON against Grafana's own schema, of one version: typecheck.sh 12.4.11. Needs npm and the
# network; leaves nothing behind.
set -eu
dashboards=$(cd "$(dirname "$0")/../../dashboards" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
version=${1:-11.6.0}
npm init --yes >/dev/null 2>&1
npm install --no-audit --no-fund --ignore-scripts --silent typescript@5.4.5 "@grafana/schema@$version" 2>/dev/null
{
    echo 'import type { AnnotationQuery, Dashboard, VariableModel } from "@grafana/schema";'
    # JSON has the words of an enumeration, not its members.
    echo 'type Words<T> = T extends string ? `${T}` : T extends number ? T : T extends (infer U)[] ? Words<U>[]'
    echo '  : T extends object ? { [K in keyof T]: Words<T[K]> } : T;'
    echo '// What the schema leaves to the data source, and what the SDK writes of variables beyond it.'
    echo 'type Mark = Words<AnnotationQuery> & Record<"expr" | "step" | "tagKeys" | "textFormat" | "titleFormat", string>;'
    echo 'type Variable = Words<VariableModel> & { auto?: boolean; auto_count?: number; auto_min?: string };'
    echo 'type Board = Omit<Words<Dashboard>, "annotations" | "templating"> & {'
    echo '  annotations: { list?: Mark[] }; templating: { list: Variable[] } };'
    for name in diagnosis job detail host fleet capacity; do
        printf 'export const %s: Board = ' "$name"
        cat "$dashboards/$name.json"
        echo ';'
    done
} >check.ts
npx --no-install tsc --noEmit --strict --skipLibCheck --moduleResolution bundler --module esnext --target es2020 check.ts
echo "The dashboards are what @grafana/schema $version calls a Dashboard."
