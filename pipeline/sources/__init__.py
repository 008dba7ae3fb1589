"""Where images come from: folders, arrays, public data sets, generated photographs; and which files are left out."""

from unstall.pipeline.sources.changes import Changes, FolderWatch, content_fingerprint
from unstall.pipeline.sources.datasets import Dataset, open_dataset
from unstall.pipeline.sources.folder import class_folders, files_below, split_folders, subfolders
from unstall.pipeline.sources.headers import FORMATS, MAX_BYTES, Unusable, inspect
from unstall.pipeline.sources.names import FileNames
from unstall.pipeline.sources.published import FORMS, DatasetError
from unstall.pipeline.sources.skip_list import Entry, skip_list_text

__all__ = [
    "FORMATS",
    "FORMS",
    "MAX_BYTES",
    "Changes",
    "Dataset",
    "DatasetError",
    "Entry",
    "FileNames",
    "FolderWatch",
    "Unusable",
    "class_folders",
    "content_fingerprint",
    "files_below",
    "inspect",
    "open_dataset",
    "skip_list_text",
    "split_folders",
    "subfolders",
]
