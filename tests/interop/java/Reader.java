import static org.projectnessie.model.FetchOption.ALL;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.projectnessie.client.api.NessieApiV2;
import org.projectnessie.model.Content;
import org.projectnessie.model.Detached;
import org.projectnessie.model.EntriesResponse;
import org.projectnessie.model.LogResponse.LogEntry;

/**
 * Reads all that a branch holds, in every way that the client has: `Reader URI BRANCH` prints a line `KEY TYPE` for
 * each entry. What the client cannot parse, or what looks different from another side, ends it with an error.
 */
public final class Reader {
    public static void main(String[] arguments) throws Exception {
        String branch = arguments[1];
        try (NessieApiV2 api = Scenarios.connect(arguments[0])) {
            List<EntriesResponse.Entry> entries = api.getEntries().refName(branch).withContent(true).stream()
                .collect(Collectors.toList());
            for (EntriesResponse.Entry entry : entries) {
                Content content = api.getContent().refName(branch).getSingle(entry.getName()).getContent();
                mustBeSame(entry.getContent(), content);
                mustBeSame(entry.getContentId(), content.getId());
                mustBeSame(entry.getType(), content.getType());
                System.out.println(entry.getName() + " " + entry.getType());
            }
            List<Content> contents = entries.stream().map(EntriesResponse.Entry::getContent).collect(Collectors.toList());
            List<Content> added = api.getDiff().fromRef(Detached.of(api.getConfig().getNoAncestorHash()))
                .toRefName(branch).stream().map(entry -> entry.getTo()).collect(Collectors.toList());
            mustBeSame(contents, added);
            List<LogEntry> log = new ArrayList<>();
            api.getCommitLog().refName(branch).fetch(ALL).stream().forEach(log::add);
            mustBeSame(false, log.isEmpty());
            api.getAllReferences().fetch(ALL).stream().forEach(reference -> { });
        }
    }

    private static void mustBeSame(Object one, Object other) {
        if (!one.equals(other)) {
            throw new AssertionError(one + " is not " + other);
        }
    }
}
