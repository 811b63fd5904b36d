"""Nessie's REST API, version 1: the table of its routes. Pynessie and older clients speak it."""

from __future__ import annotations

from typing import Final

from penstock.server.nessie import commit_handlers, json_types, v1_json_types, v1_namespaces, v1_trees
from penstock.server.nessie.codec import CODEC
from penstock.server.nessie.errors import make_error_answer
from penstock.server.routes import Api, Route

_TYPE: Final = {"type": "branch|tag|BRANCH|TAG"}
_SIDES: Final = {"from": "[^/]*?", "to": "[^/]+"}

_REFERENCES: Final = (
    Route(
        method="GET",
        path="/trees",
        handle=v1_trees.list_references,
        summary="List branches and tags",
        query=v1_trees.ReferencesQuery,
        answer=v1_json_types.V1ReferencesResponse,
    ),
    Route(
        method="GET",
        path="/trees/tree",
        handle=v1_trees.get_default_branch,
        summary="Get the default branch",
        answer=v1_json_types.AnyReference,
        statuses=(404,),
    ),
    Route(
        method="POST",
        path="/trees/tree",
        handle=v1_trees.create_reference,
        summary="Create a branch or tag at a commit",
        query=v1_trees.V1CreateQuery,
        body=json_types.AnyReferenceInput,
        body_required=False,
        answer=v1_json_types.AnyReference,
        statuses=(404, 409),
        is_write=True,
    ),
    Route(
        method="GET",
        path="/trees/tree/{ref}",
        handle=v1_trees.get_reference,
        summary="Get a branch or tag",
        query=v1_trees.FetchQuery,
        answer=v1_json_types.AnyReference,
        statuses=(404,),
    ),
    Route(
        method="PUT",
        path="/trees/{type}/{name}",
        handle=v1_trees.assign_reference,
        summary="Assign a branch or tag to another commit",
        query=v1_trees.ExpectedHashQuery,
        body=json_types.AnyReferenceInput,
        body_required=False,
        statuses=(404, 409),
        patterns=_TYPE,
        is_write=True,
    ),
    Route(
        method="DELETE",
        path="/trees/{type}/{name}",
        handle=v1_trees.delete_reference,
        summary="Delete a branch or tag",
        query=v1_trees.ExpectedHashQuery,
        statuses=(404, 409),
        patterns=_TYPE,
        is_write=True,
    ),
)

_READING: Final = (
    Route(
        method="GET",
        path="/trees/tree/{ref}/entries",
        handle=v1_trees.list_entries,
        summary="List keys",
        query=v1_trees.V1EntriesQuery,
        answer=v1_json_types.V1EntriesResponse,
        statuses=(404,),
    ),
    Route(
        method="GET",
        path="/trees/tree/{ref}/log",
        handle=v1_trees.get_log,
        summary="List commits, newest first",
        query=v1_trees.LogQuery,
        answer=v1_json_types.V1LogResponse,
        statuses=(404,),
    ),
    Route(
        method="GET",
        path="/contents/{key}",
        handle=v1_trees.get_content,
        summary="Get the content of a key",
        query=v1_trees.V1ContentQuery,
        answer=json_types.AnyContent,
        statuses=(404,),
    ),
    Route(
        method="POST",
        path="/contents",
        handle=v1_trees.get_contents,
        summary="Get the contents of several keys",
        query=v1_trees.V1ContentQuery,
        body=json_types.GetMultipleContentsRequest,
        body_required=False,
        answer=v1_json_types.V1GetMultipleContentsResponse,
        statuses=(404,),
    ),
    Route(
        method="GET",
        path="/diffs/{from}...{to}",
        handle=v1_trees.get_diff,
        summary="List keys that differ between two commits",
        description="Each side is `name`, `name*hash` or `*hash`.",
        query=v1_trees.V1PageQuery,
        answer=v1_json_types.V1DiffResponse,
        statuses=(404,),
        patterns=_SIDES,
    ),
)

_WRITING: Final = (
    Route(
        method="POST",
        path="/trees/branch/{branch}/commit",
        handle=v1_trees.handle_commit,
        headers=commit_handlers.KEY,
        summary="Commit operations to a branch atomically",
        query=v1_trees.ExpectedHashQuery,
        body=json_types.Operations,
        body_required=False,
        answer=v1_json_types.AnyReference,
        statuses=(404, 409),
        is_write=True,
    ),
    Route(
        method="POST",
        path="/trees/branch/{branch}/merge",
        handle=v1_trees.handle_merge,
        headers=commit_handlers.KEY,
        summary="Merge a branch, tag or commit into a branch",
        query=v1_trees.ExpectedHashQuery,
        body=v1_json_types.V1MergeRequest,
        body_required=False,
        answer=v1_json_types.V1MergeResponse,
        statuses=(404, 409),
        is_write=True,
    ),
    Route(
        method="POST",
        path="/trees/branch/{branch}/transplant",
        handle=v1_trees.handle_transplant,
        headers=commit_handlers.KEY,
        summary="Transplant commits to a branch",
        query=v1_trees.TransplantQuery,
        body=v1_json_types.V1TransplantRequest,
        body_required=False,
        answer=v1_json_types.V1MergeResponse,
        statuses=(404, 409),
        is_write=True,
    ),
)

_NAMESPACES: Final = (
    Route(
        method="GET",
        path="/namespaces/{ref}",
        handle=v1_namespaces.get_namespaces,
        summary="List namespaces",
        query=v1_namespaces.NamespacesQuery,
        answer=v1_json_types.GetNamespacesResponse,
        statuses=(404,),
    ),
    Route(
        method="GET",
        path="/namespaces/namespace/{ref}/{name}",
        handle=v1_namespaces.get_namespace,
        summary="Get a namespace",
        query=v1_namespaces.NamespaceQuery,
        answer=json_types.NessieNamespace,
        statuses=(404,),
    ),
    Route(
        method="PUT",
        path="/namespaces/namespace/{ref}/{name}",
        handle=v1_namespaces.create_namespace,
        headers=commit_handlers.KEY,
        summary="Create a namespace, with the properties in the body",
        body=json_types.NessieNamespace,
        body_required=False,
        answer=json_types.NessieNamespace,
        statuses=(404, 409),
        is_write=True,
    ),
    Route(
        method="POST",
        path="/namespaces/namespace/{ref}/{name}",
        handle=v1_namespaces.update_namespace,
        headers=commit_handlers.KEY,
        summary="Update the properties of a namespace",
        body=v1_json_types.NamespaceUpdate,
        body_required=False,
        statuses=(404, 409),
        is_write=True,
    ),
    Route(
        method="DELETE",
        path="/namespaces/namespace/{ref}/{name}",
        handle=v1_namespaces.delete_namespace,
        headers=commit_handlers.KEY,
        summary="Delete an empty namespace",
        statuses=(404, 409),
        is_write=True,
    ),
)

V1: Final = Api(
    name="nessie_v1",
    prefix="/api/v1",
    title="Nessie REST API, version 1",
    description=(
        "For pynessie and older clients of Nessie. A slash in a name is written `%2F`. Every write needs "
        "the expected hash of the branch. As in version 2, a hash that cannot be reached from the name "
        "given with it is refused."
    ),
    codec=CODEC,
    error=make_error_answer,
    error_schema=json_types.NessieError,
    strict_query=False,
    routes=(
        Route(
            method="GET",
            path="/config",
            handle=v1_trees.get_config,
            summary="Get the configuration of the server",
            answer=v1_json_types.V1NessieConfiguration,
        ),
        *_REFERENCES,
        *_READING,
        *_WRITING,
        *_NAMESPACES,
    ),
)
